/** Copying what is shown. */

import { say } from "./dialogs.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";

/** A button that copies `text`. */
export function copyButton(text, label) {
  if (!navigator.clipboard) return null; // browsers have it for https and this machine only
  const copy = () => navigator.clipboard.writeText(text).then(() => say("Copied."), () => say("It cannot be copied here."));
  return h("button.quiet-button.small", { type: "button", "aria-label": label, title: label, on: { click: copy } }, icon("copy"));
}
