/**
 * Values of tools and models for people: long texts folded, objects as lists of terms, everything as text. Arguments that
 * wait for approval are never folded, and their invisible characters are named.
 */

import { copyButton } from "../copying.js";
import { h } from "../dom.js";
import { size } from "../words.js";

const FOLDED = 3_000;
const DEEPEST = 8;
/** Controls, and characters that hide, join or turn letters; the terminal names the same ones. */
const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
/** A string, an empty container, or punctuation. */
const PART = /"(?:[^"\\]|\\.)*"|\{\}|\[\]|[{}[\],:]/g;

/** A verbatim text, in full on demand. */
export function text(content, folded = FOLDED) {
  const block = h("pre", { tabindex: 0 }, content.length > folded ? content.slice(0, folded) : content);
  const copy = copyButton(content, "Copy the text");
  if (content.length <= folded) return h("div.text", null, block, copy);
  const more = h("button.link", { type: "button", on: { click: () => ((block.textContent = content), more.remove()) } }, `… Show all of it (${size(content.length)})`);
  return h("div.text", null, block, copy, more);
}

/** Terms with their values; terms without one are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, what]) => what);
  return known.length ? h("dl.facts-list", null, known.map(([name, what]) => [h("dt", null, name), h("dd", null, what)])) : null;
}

/** Any JSON value; deeply nested parts appear as JSON. `long` renders long texts. */
export function value(what, { depth = 0, long = text } = {}) {
  if (what === null || what === undefined || what === "") return h("span.quiet", null, "none");
  if (typeof what === "string") return what.includes("\n") || what.length > 400 ? long(what) : h("span.told", null, what);
  if (typeof what !== "object") return h("code", null, String(what));
  if (depth >= DEEPEST) return long(JSON.stringify(what, null, 2));
  const inside = (one) => value(one, { depth: depth + 1, long });
  if (Array.isArray(what)) return what.length ? h("ol.values", null, what.map((one) => h("li", null, inside(one)))) : h("span.quiet", null, "none");
  const pairs = Object.entries(what);
  return pairs.length ? h("dl.values", null, pairs.map(([name, one]) => [h("dt", null, name.replaceAll("_", " ")), h("dd", null, inside(one))])) : h("span.quiet", null, "none");
}

/** JSON exactly as it will be sent, with line breaks and indents added. It is not parsed, which could change a number. */
export function exactly(json) {
  return text(seen(indented(json)), Infinity);
}

/** The multi-line texts among these arguments, with their line breaks; null if there are none. */
export function inLines(what) {
  const several = Object.entries(what).filter(([, one]) => typeof one === "string" && one.includes("\n"));
  return facts(several.map(([name, one]) => [`${seen(name)}, as it reads`, text(seen(one), Infinity)]));
}

function indented(json) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return json.replace(PART, (part) => {
    if (part === "{" || part === "[") return (depth++, part + line());
    if (part === "}" || part === "]") return (depth--, line() + part);
    return part === "," ? part + line() : part === ":" ? ": " : part;
  });
}

function seen(content) {
  return content.replace(UNSEEN, (sign) => `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
