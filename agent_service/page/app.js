/** The page: its head, the view of the current address, and the state that all views share. */

import { Refused, askWith, forgetToken, glance, hasToken } from "./api.js";
import { confirm, field, overlay, quietButton, say } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { healthStrip } from "./health.js";
import { help, listen } from "./keys.js";
import { go, hashOf, here } from "./routes.js";
import { change as changeTheme, themeSwitch } from "./theme.js";
import { capital, plural } from "./words.js";
import { InboxView } from "./views/inbox.js";
import { NewView } from "./views/new.js";
import { RunView } from "./views/run.js";
import { RunsView } from "./views/runs.js";
import { UsageView } from "./views/usage.js";

const TITLE = "Agentic Loop";
const COUNTED_MS = 15_000;
const TOKEN_NEEDED = "This agent needs a token.";
const TITLES = { 0: "No answer", 401: "A token is needed", 403: "Not allowed", 404: "Not found", 410: "Kept no longer" };
const LIVE = { live: "", away: "Reconnecting…", over: "" };
const main = document.getElementById("main");
const skip = document.querySelector(".skip");
const places = h("nav.places", { "aria-label": "Places" });
const liveness = h("span.liveness", { role: "status" });
const person = h("span");

/** Shared by all views: errors, the number of requests to people, scopes, and the state of the stream. */
const page = {
  waiting: null,
  scopes: null,
  list: "#/runs",
  run: "",

  /** The result of `act`; null after an error, which is shown in `word`. */
  async tried(word, act) {
    try {
      return await act();
    } catch (error) {
      if (error.name !== "AbortError") fill(word, trouble(error));
      return null;
    }
  },

  /** Counts the inbox again. */
  recount: () => count(),

  live(state) {
    if (liveness.textContent !== LIVE[state]) liveness.textContent = LIVE[state];
  },

  needsPerson(count) {
    if (count === page.waiting) return;
    page.waiting = count;
    drawPlaces();
  },

  /** True if the caller's token allows `scope`, or while its scopes are unknown. */
  may: (scope) => page.scopes === null || page.scopes.includes(scope),

  /** Focuses the line of the run that the person comes back from. */
  back(lines) {
    const line = page.run && [...lines.children].find((one) => one.dataset.key === page.run)?.querySelector("a");
    page.run = "";
    if (line && focusIsFree()) line.focus();
  },

  title(text) {
    document.title = `${text} · ${TITLE}`;
  },
};

const strip = healthStrip(page);

function trouble(error) {
  const text = error.status === 401 ? TOKEN_NEEDED : error instanceof Refused ? capital(error.message) : String(error);
  const title = TITLES[error.status] ?? "This did not work";
  const again = () => h("button", { type: "button", on: { click: () => show(true) } }, "Try again");
  const what = error.status === 404 || error.status === 410 ? h("a", { href: hashOf(["runs"]) }, "All runs") : again();
  return h("div.empty", { role: "alert" }, h("h2", null, title), h("p", null, text), h("p", null, what));
}

function viewOf([place = "runs", id]) {
  if (place === "runs" && id) return { key: `run ${id}`, name: "runs", title: "Run", make: () => new RunView(page, id) };
  if (place === "inbox") return { key: "inbox", name: "inbox", title: "Inbox", make: () => new InboxView(page) };
  if (place === "usage") return { key: "usage", name: "usage", title: "Usage", make: () => new UsageView(page) };
  if (place === "new") return { key: `new ${location.hash}`, name: "new", title: "New run", make: () => new NewView(page) };
  return { key: "runs", name: "runs", title: "Runs", make: () => new RunsView(page) };
}

let current = null;

async function show(afresh = false) {
  const route = here();
  const wanted = viewOf(route.path);
  const isNew = afresh || current?.key !== wanted.key;
  if (isNew) {
    current?.view.close?.();
    document.querySelectorAll("dialog[open]:not(.ask)").forEach((dialog) => dialog.close());
    current = { ...wanted, view: wanted.make() };
    page.live("live");
    page.title(wanted.title);
    fill(main, current.view.node);
    window.scrollTo({ top: 0 });
  }
  if (current.key === "runs") page.list = location.hash || page.list;
  else if (current.name === "runs") page.run = route.path[1];
  drawPlaces();
  await current.view.show(route);
  if (isNew && focusIsFree()) main.querySelector("h1")?.focus({ preventScroll: true });
}

/** True if the focus has not moved since the page was shown. */
function focusIsFree() {
  const focused = document.activeElement;
  return !focused || focused === document.body || focused === main || focused.closest(".places") !== null;
}

function drawPlaces() {
  const waiting = page.waiting ? h("span.badge", null, String(page.waiting), h("span.unseen", null, " wait for a person")) : null;
  const place = (name, label, ...more) => h("a", { href: hashOf([name]), "aria-current": current?.name === name ? "page" : null }, label, ...more);
  fill(places, place("runs", "Runs"), place("inbox", "Inbox", waiting), place("usage", "Usage"), place("new", "New run"));
}

function drawHead() {
  const brand = h("a.brand", { href: "#/runs" }, h("span.dot", { "aria-hidden": "true" }), TITLE);
  fill(document.getElementById("top"), h("div.bar", null, brand, places, h("div.tools", null, liveness, person, themeSwitch(), quietButton("Keyboard and help", help, "help"))), strip);
}

/** Asks for a token. */
async function askForToken(why) {
  const token = field("token", "Token", { kind: "password", autocomplete: "off", spellcheck: "false", hint: "One of agent.http.tokens. It stays in this tab and goes to this agent only." });
  const keep = h("input", { type: "checkbox", id: "keep-token" });
  const choice = { name: "keep", node: h("p.choice", null, keep, h("label", { for: "keep-token" }, "Keep it until this tab is closed")), value: () => keep.checked };
  const text = why || TOKEN_NEEDED;
  const given = await confirm({ title: "Token", text, fields: [token, choice], action: "Use it", act: (values) => {
    if (!/^[\x21-\x7e]{1,512}$/.test(values.token)) throw new Error("A token is one word of plain characters.");
    return values;
  } });
  if (given) setTimeout(whoami);
  return given;
}

async function count() {
  const inbox = document.hidden ? null : await glance("v1/inbox", { limit: 1 });
  if (inbox) page.needsPerson(inbox.total);
}

async function whoami() {
  const found = await glance("v1/whoami");
  page.scopes = found?.scopes ?? null;
  fill(person, hasToken() && h("button.who", { type: "button", on: { click: () => aboutCaller(found) } }, found?.caller ?? "token"));
}

function aboutCaller(found) {
  const leave = () => {
    forgetToken();
    location.reload();
  };
  const scopes = found ? plural(found.scopes.length, "scope") + `: ${found.scopes.join(", ")}` : "";
  overlay("Token", h("div.stack", null, h("p", null, `You call as ${found?.caller ?? "somebody with a token"}. ${scopes}`), h("p", null, h("button", { type: "button", on: { click: leave } }, "Forget the token"))));
}

askWith(askForToken);
drawHead();
skip.addEventListener("click", (event) => (event.preventDefault(), main.focus()));
listen({
  "/": () => (current?.name === "runs" && main.querySelector("[data-filter]") ? main.querySelector("[data-filter]").focus() : go(["runs"])),
  g: () => go(["runs"]),
  i: () => go(["inbox"]),
  u: () => go(["usage"]),
  n: () => go(["new"]),
  t: changeTheme,
  Escape: () => current?.key !== "runs" && Boolean((location.hash = page.list)),
});
window.addEventListener("hashchange", () => show());
await show().then(whoami);
strip.look();
count();
setInterval(count, COUNTED_MS);
