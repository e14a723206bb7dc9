/**
 * Keyboard shortcuts: `/` focuses the filter, j and k (in a list also the arrows) move between lines, Enter opens, Esc goes
 * back. Single letters can be switched off, for people who dictate (WCAG 2.1.4).
 */

import { overlay } from "./dialogs.js";
import { h } from "./dom.js";

const KEPT = "agentic.letters";
const LINES = "[data-line]";
const TYPED_INTO = "input, textarea, select, [contenteditable]";
const HELP = [
  ["/", "find runs"], ["j  k", "next and previous line of a list; arrows do the same inside it"], ["Enter", "open the line"],
  ["Esc", "close what is open; leave the filter; back to the list"], ["g", "runs"], ["i", "inbox"], ["u", "usage"], ["n", "new run"],
  ["t", "appearance: as the system, light, dark"], ["?", "this help"],
];

/** Adds the actions `acts`, functions by key, to the built-in ones. */
export function listen(acts) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (pressed(event, acts)) event.preventDefault();
  });
}

function pressed(event, acts) {
  const target = event.target;
  const open = document.querySelector("dialog[open]");
  if (target.matches?.(TYPED_INTO)) return event.key === "Escape" && !open && leave(target);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") return Boolean(target.closest?.(LINES)) && move(event.key === "ArrowDown" ? 1 : -1);
  if (event.key === "Escape") return !open && Boolean(acts.Escape?.());
  if (!lettersWork() && event.key.length === 1) return false;
  if (event.key === "j" || event.key === "k") return move(event.key === "j" ? 1 : -1);
  if (open) return false;
  if (event.key === "?") return Boolean(help());
  const act = acts[event.key];
  act?.();
  return Boolean(act);
}

/** Focuses the next or previous line of the list, or the first if none has the focus. */
function move(by) {
  const room = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.getElementById("main");
  const lines = [...room.querySelectorAll(LINES)].filter((line) => line.offsetParent !== null);
  const at = lines.indexOf(document.activeElement?.closest(LINES));
  const next = at < 0 ? lines[0] : lines[at + by];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return lines.length > 0;
}

function leave(input) {
  input.blur();
  document.getElementById("main").focus();
  return true;
}

const lettersWork = () => localStorage.getItem(KEPT) !== "off";

export function help() {
  const rows = HELP.map(([keys, what]) => [h("dt", null, keys.split("  ").map((key) => h("kbd", null, key))), h("dd", null, what)]);
  const letters = h("input", { type: "checkbox", id: "letters" });
  letters.checked = lettersWork();
  letters.addEventListener("change", () => localStorage.setItem(KEPT, letters.checked ? "on" : "off"));
  const choice = h("p.choice", null, letters, h("label", { for: "letters" }, "Single letters act at once"));
  return overlay("Keyboard", h("div", null, h("dl.keys", null, rows), choice));
}
