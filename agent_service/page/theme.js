/** Dark or light: as the system has it, unless a person chose. The choice is remembered by this browser. */

import { say } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";

const KEPT = "agentic.appearance";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const WORDS = { auto: "as the system", light: "light", dark: "dark" };

const button = h("button.quiet-button", { type: "button", on: { click: change } });

/** The switch. */
export function themeSwitch() {
  show(localStorage.getItem(KEPT));
  return button;
}

/** On to the next appearance. */
export function change() {
  const next = NEXT[document.documentElement.dataset.theme] ?? "light";
  localStorage.setItem(KEPT, next);
  show(next);
  say(`Appearance: ${WORDS[next]}`);
}

function show(kept) {
  const chosen = kept in NEXT ? kept : "auto";
  document.documentElement.dataset.theme = chosen;
  button.setAttribute("aria-label", `Appearance: ${WORDS[chosen]}`);
  button.title = `Appearance: ${WORDS[chosen]}`;
  fill(button, icon(chosen));
}
