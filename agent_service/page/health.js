/** The health strip: one button per part, which opens its findings and their remedies. */

import { buttons } from "./actions.js";
import { call } from "./api.js";
import { overlay } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";

const EVERY_MS = 15_000;
const MARKS = { ok: ["done", "ok"], warning: ["escalated", "warning"], wrong: ["failed", "wrong"] };
const WORST = ["wrong", "warning", "ok"];
const NAMES = { agent: "agent", gateway: "gateway", nats: "NATS", ductile: "Ductile", model: "model", store: "store" };
/** The inbox counts them; the bus is healthy despite them. */
const IN_THE_INBOX = "dead letters";

/** Makes the strip, which refreshes itself. `page` knows the caller's scopes. */
export function healthStrip(page) {
  const node = h("ul.health", { "aria-label": "Health" });
  const look = async () => {
    if (!document.hidden) show(node, page, await call("v1/health", { silent: true }).catch(unreachable));
  };
  setInterval(look, EVERY_MS);
  document.addEventListener("visibilitychange", look);
  node.look = look;
  return node;
}

function unreachable(error) {
  if (error.status) return null;
  return { checks: [{ part: "agent", name: "the page", mark: "wrong", text: error.message, remedy: "Start the agent." }] };
}

function show(node, page, health) {
  node.hidden = !health;
  if (!health) return;
  const parts = [...new Set(health.checks.map((check) => check.part))];
  fill(node, parts.map((part) => one(node, page, part, health.checks.filter((check) => check.part === part))));
}

function one(node, page, part, checks) {
  const worst = WORST.find((mark) => checks.some((check) => check.mark === mark && check.name !== IN_THE_INBOX)) ?? "ok";
  const [drawing, word] = MARKS[worst];
  const halt = checks.find((check) => check.name === "halt" && check.mark === "wrong");
  const press = () => overlay(`Health: ${NAMES[part] ?? part}`, [checks.map(told), halt && buttons(page, ["go_on"], {}, { done: node.look, loud: true })]);
  return h("li", null, h("button", { type: "button", class: `part is-${worst}`, on: { click: press } }, icon(drawing), NAMES[part] ?? part, h(worst === "ok" ? "span.unseen" : "span", null, ` ${halt ? halt.text : word}`)));
}

function told(check) {
  const [drawing, word] = MARKS[check.mark];
  return h("section.check", { class: `check is-${check.mark}` }, h("h3", null, icon(drawing), check.name, h("span.unseen", null, `: ${word}`)), h("p", null, check.text), check.remedy && h("p.quiet", null, check.remedy));
}
