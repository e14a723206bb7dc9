/** Dark or light theme: the system's, or the person's choice, which this browser stores. */

import { say } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";

const KEPT = "agentic.appearance";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const WORDS = { auto: "as the system", light: "light", dark: "dark" };

const button = h("button.quiet-button", { type: "button", on: { click: change } });

/** The button that changes the theme. */
export function themeSwitch() {
  show(localStorage.getItem(KEPT));
  return button;
}

/** Switches to the next theme. */
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
