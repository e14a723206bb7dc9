/** Copies and saves texts. */

import { say } from "./dialogs.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";

/** Downloads a file as bytes that no browser executes. */
export function save(name, content) {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A button that copies `text`. */
export function copyButton(text, label) {
  if (!navigator.clipboard) return null; // browsers have it for https and this machine only
  const copy = () => navigator.clipboard.writeText(text).then(() => say("Copied."), () => say("It cannot be copied here."));
  return h("button.quiet-button.small", { type: "button", "aria-label": label, title: label, on: { click: copy } }, icon("copy"));
}
