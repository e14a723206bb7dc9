/**
 * Renders Markdown as nodes: headings, paragraphs, lists with ticks, quotes, fences, tables, rules; code, strong, emphasis,
 * links. HTML stays text. Links lead to http and https only and show their targets; images become links, so nothing is
 * fetched. It reads each line once and nests no deeper than DEEPEST. Texts over LONGEST characters stay plain, because
 * their elements would freeze a browser.
 */

import { h } from "./dom.js";

const DEEPEST = 6;
const LONGEST = 200_000;
const LONGEST_LINE = 4_000;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+([^]*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+([^]*)$/;
const QUOTE = /^ {0,3}> ?/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const TABLE = /^ {0,3}\|.*\|\s*$/;
const TICK = /^\[([ xX])\]\s+/;
const OPENING = /\\([!-/:-@[-`{-~])|(?<!`)`+|(?:\*\*|__)(?=\S)|(?<![\w*])[*_](?=[^\s*_])|!?\[|https?:\/\//g;
const CLOSED = [
  /(`+)(?!`)(.+?)(?<!`)\1(?!`)/y, /(\*\*|__)(.+?)(?<=\S)\1/y, /([*_])(.+?)(?<=\S)\1(?![\w*])/y,
  /!?\[([^[\]]{0,500})\]\(<?([^\s)>[]{1,2000})>?(?:\s+"[^"]*")?\)/y, /()(https?:\/\/[^\s<>"'`)\]]{1,2000})/y,
];

/** Renders the text as an element. */
export function markdown(text) {
  if (text.length > LONGEST) return h("div.markdown", null, h("pre", { tabindex: 0 }, text));
  return h("div.markdown", null, blocks(text.replaceAll("\r\n", "\n").split("\n"), 0));
}

function blocks(lines, depth) {
  const found = [];
  const reader = { lines, at: 0 };
  while (reader.at < lines.length) {
    const block = lines[reader.at].trim() ? next(reader, depth) : void reader.at++;
    if (block) found.push(block);
  }
  return found;
}

function next(reader, depth) {
  const line = reader.lines[reader.at];
  if (line.length > LONGEST_LINE) return paragraph(reader);
  const fence = FENCE.exec(line);
  if (fence) return fenced(reader, fence[1]);
  const heading = HEADING.exec(line);
  if (heading) return reader.at++, h(`h${Math.min(6, heading[1].length + 2)}`, null, inline(untagged(heading[2])));
  if (RULE.test(line)) return reader.at++, h("hr");
  if (QUOTE.test(line) && depth < DEEPEST) return h("blockquote", null, blocks(taken(reader, (one) => QUOTE.test(one)).map((one) => one.replace(QUOTE, "")), depth + 1));
  if (ITEM.test(line) && depth < DEEPEST) return listed(reader, depth);
  if (TABLE.test(line)) return table(taken(reader, (one) => TABLE.test(one)));
  return paragraph(reader);
}

/** Removes the closing `#` of a heading. */
function untagged(text) {
  let end = text.trimEnd();
  while (end.endsWith("#")) end = end.slice(0, -1);
  return end.trimEnd();
}

function taken(reader, fits) {
  const from = reader.at;
  while (reader.at < reader.lines.length && fits(reader.lines[reader.at])) reader.at++;
  return reader.lines.slice(from, reader.at);
}

function fenced(reader, fence) {
  reader.at++;
  const inside = taken(reader, (line) => !(line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "")));
  reader.at++;
  return h("pre", { tabindex: 0 }, h("code", null, inside.join("\n")));
}

function paragraph(reader) {
  const [first, ...more] = [reader.lines[reader.at++], ...taken(reader, (line) => line.trim() && line.length <= LONGEST_LINE && ![FENCE, HEADING, QUOTE, ITEM, RULE].some((one) => one.test(line)))];
  return h("p", null, inline([first, ...more].join("\n").trim()));
}

/** Items of one indentation; lines indented further belong to the item above. */
function listed(reader, depth) {
  const [, indent, marker] = ITEM.exec(reader.lines[reader.at]);
  const items = [];
  for (;;) {
    const found = reader.at < reader.lines.length && ITEM.exec(reader.lines[reader.at]);
    if (!found || found[1].length !== indent.length) break;
    reader.at++;
    const below = taken(reader, (line) => line.trim() && /^\s*/.exec(line)[0].length > indent.length);
    items.push(item(found[3], below, depth));
    if (!reader.lines[reader.at]?.trim() && ITEM.test(reader.lines[reader.at + 1] ?? "")) reader.at++;
  }
  return h(/\d/.test(marker) ? "ol" : "ul", null, items);
}

function item(text, below, depth) {
  const tick = TICK.exec(text);
  const rest = inline(tick ? text.slice(tick[0].length) : text);
  const box = tick && h("span.tick", { role: "img", "aria-label": tick[1] === " " ? "open" : "done" }, tick[1] === " " ? "☐" : "☑");
  const margin = Math.min(...below.map((line) => /^\s*/.exec(line)[0].length));
  return h(tick ? "li.ticked" : "li", null, box, rest, blocks(below.map((line) => line.slice(margin)), depth + 1));
}

function table(lines) {
  const rows = lines.map((line) => line.trim().slice(1, -1).split("|").map((cell) => cell.trim()));
  const ruled = rows[1]?.every((cell) => /^:?-+:?$/.test(cell));
  const body = rows.slice(ruled ? 2 : 0).map((row) => h("tr", null, row.map((cell) => h("td", null, inline(cell)))));
  const head = ruled && h("thead", null, h("tr", null, rows[0].map((cell) => h("th", null, inline(cell)))));
  return h("div.scrolls", { tabindex: 0 }, h("table", null, head, h("tbody", null, body)));
}

/** After a mark without a closing one, it tries no further mark of that kind on the line, so the time stays linear. */
function inline(text, depth = 0) {
  if (depth > DEEPEST || text.length > LONGEST_LINE) return [text];
  const found = [], opening = new RegExp(OPENING), unclosed = new Map();
  let end = 0;
  for (let match; (match = opening.exec(text)); ) {
    const [sign, escaped] = match, at = match.index;
    if (at < unclosed.get(sign)) continue;
    const closed = escaped ? [sign] : closedAt(text, at, kindOf(sign));
    if (closed) {
      found.push(text.slice(end, at), escaped ?? span(closed, kindOf(sign), depth));
      end = opening.lastIndex = at + closed[0].length;
    } else if (/[`*_]/.test(sign)) unclosed.set(sign, endOfLine(text, at));
  }
  return [...found, text.slice(end)];
}

const kindOf = (sign) => (sign[0] === "`" ? 0 : /[*_]/.test(sign) ? 3 - sign.length : sign[0] === "h" ? 4 : 3);

function endOfLine(text, at) {
  const end = text.indexOf("\n", at);
  return end < 0 ? text.length : end;
}

function closedAt(text, at, kind) {
  CLOSED[kind].lastIndex = at;
  return CLOSED[kind].exec(text);
}

function span([all, label, inside], kind, depth) {
  if (kind === 0) return h("code", null, inside.trim() || inside);
  if (kind === 3) return link(inside, label) ?? all;
  return kind === 4 ? link(inside) ?? inside : h(kind === 1 ? "strong" : "em", null, inline(inside, depth + 1));
}

/** A link to the web that shows its target; null for any other target. */
function link(target, label = "") {
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return null;
  const { href } = new URL(target);
  const shown = label && label !== target ? [`${label} `, h("span.target", null, `(${href})`)] : [href];
  return h("a", { href, rel: "noopener noreferrer nofollow", target: "_blank" }, shown);
}
