/** Routes in the address after `#`: `#/runs?status=paused`, `#/runs/RUN/journal`, `#/inbox`, `#/usage?day=2026-12-24`, `#/new`. */

/** Parses an address into {path: [...], query}. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

/** The address of a route. */
export function hashOf(path, query) {
  const asked = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${asked && `?${asked}`}`;
}

/** Navigates to a route. */
export function go(path, query) {
  location.hash = hashOf(path, query);
}

/** Navigates without a history entry: for filters while a person types. */
export function replace(path, query) {
  history.replaceState(null, "", hashOf(path, query));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
