/** Where one is, in the part of the address after `#`: `#/runs?status=paused`, `#/runs/RUN/journal`, `#/inbox`, `#/usage?day=2026-12-24`, `#/new`. */

/** {path: [...], query} of an address. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

/** The address of a place. */
export function hashOf(path, query) {
  const asked = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${asked && `?${asked}`}`;
}

/** Go there. */
export function go(path, query) {
  location.hash = hashOf(path, query);
}

/** Go there without a step back to where one was: for filters while they are typed. */
export function replace(path, query) {
  history.replaceState(null, "", hashOf(path, query));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
