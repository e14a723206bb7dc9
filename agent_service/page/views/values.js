/** Values of tools and models for people: long texts folded, objects as lists of terms, everything as text. */

import { h } from "../dom.js";
import { copyButton } from "./run_head.js";
import { size } from "../words.js";

const FOLDED = 3_000;
const DEEPEST = 8;

/** A text as it is, in full on demand. */
export function text(content) {
  const block = h("pre", { tabindex: 0 }, content.length > FOLDED ? content.slice(0, FOLDED) : content);
  const copy = copyButton(content, "Copy the text");
  if (content.length <= FOLDED) return h("div.text", null, block, copy);
  const more = h("button.link", { type: "button", on: { click: () => ((block.textContent = content), more.remove()) } }, `… Show all of it (${size(content.length)})`);
  return h("div.text", null, block, copy, more);
}

/** Terms with what is known of them: the others are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, what]) => what);
  return known.length ? h("dl.facts-list", null, known.map(([name, what]) => [h("dt", null, name), h("dd", null, what)])) : null;
}

/** Any JSON value; what is nested too deeply is shown as JSON. */
export function value(what, depth = 0) {
  if (what === null || what === undefined || what === "") return h("span.quiet", null, "none");
  if (typeof what === "string") return what.includes("\n") || what.length > 400 ? text(what) : h("span.told", null, what);
  if (typeof what !== "object") return h("code", null, String(what));
  if (depth >= DEEPEST) return text(JSON.stringify(what, null, 2));
  if (Array.isArray(what)) return what.length ? h("ol.values", null, what.map((one) => h("li", null, value(one, depth + 1)))) : h("span.quiet", null, "none");
  const pairs = Object.entries(what);
  return pairs.length ? h("dl.values", null, pairs.map(([name, one]) => [h("dt", null, name.replaceAll("_", " ")), h("dd", null, value(one, depth + 1))])) : h("span.quiet", null, "none");
}
