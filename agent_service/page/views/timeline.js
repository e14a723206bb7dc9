/** The timeline of a run as a waterfall: phases, steps with their attempts, and waits, on one time scale. */

import { call } from "../api.js";
import { now, took, until } from "../clock.js";
import { fill, h, list } from "../dom.js";
import { hashOf } from "../routes.js";
import { FINAL, duration, itemMark, statusWord, tokens, usd } from "../words.js";

const EVERY_MS = 1000;
const TICKS = [0, 0.25, 0.5, 0.75];
const UNTIL = { wait: "goes on ", pause: "at the latest " };
const AT_ONCE = new Set(["ending", "person"]);
const AT_ENDS = new Set(["accepted", "ending"]);

export class TimelinePart {
  constructor(run) {
    this.run = run;
    this.items = [];
    this.lines = h("ol.timeline");
    this.word = h("div");
    this.axis = h("p.line.item.axis", { "aria-hidden": "true" });
    this.node = h("div", null, this.word, this.axis, this.lines);
    this.timer = setInterval(() => FINAL.has(run.told.status) || this.scale(), EVERY_MS);
  }

  /** The newest entry that is certainly shown. */
  seen() {
    return Math.max(0, ...this.items.map((item) => item.entry)) || "";
  }

  async refresh() {
    const found = await this.run.page.tried(this.word, () => call(this.run.path("/timeline")));
    if (!found) return;
    this.items = told(found.items);
    list(this.lines, this.items.map((item) => ({ ...item, run_id: this.run.id })), (item) => item.id, line);
    this.scale();
  }

  /** Lays out the bars between the run's start and its end, or now. */
  scale() {
    if (!this.items.length) return;
    const from = Date.parse(this.items[0].started_at);
    const end = FINAL.has(this.run.told.status) ? Math.max(...this.items.map((item) => Date.parse(item.ended_at ?? item.started_at))) : now();
    const span = Math.max(1, end - from);
    fill(this.axis, h("span.cell.when", null, TICKS.map((part) => h("span", null, duration(span * part))), h("span", null, duration(span))));
    this.items.forEach((item, place) => {
      const bar = this.lines.children[place]?.querySelector(".when-bar");
      const until = item.ended_at ? Date.parse(item.ended_at) : isOpen(item) ? end : Date.parse(item.started_at);
      bar?.style.setProperty("--from", share(Date.parse(item.started_at) - from, span));
      bar?.style.setProperty("--long", share(until - Date.parse(item.started_at), span));
    });
  }

  close() {
    clearInterval(this.timer);
  }
}

const share = (part, whole) => Math.min(1, Math.max(0, part / whole)).toFixed(4);
const isOpen = (item) => item.status === "open" || item.status === "waiting";

/** Leaves out attempts that repeat their step or task. */
const told = (items) => items.filter((item) => !item.repeats).map((item) => ({ ...item, mark: markOf(item) }));

const markOf = (item) => {
  if (item.kind === "ending") return item.title.toLowerCase();
  return { person: "person", wait: "waiting" }[item.kind] ?? item.status;
};

/** The head of the run shows goal and ending, so the timeline does not. */
const textOf = (item) => (AT_ENDS.has(item.kind) || (item.error && item.text.includes(item.error.message)) ? "" : item.text);

function line(item) {
  const content = [
    itemMark(item.mark),
    h("span.cell.what", null,
      h("span.title", null, item.title, h("span.unseen", null, `, ${statusWord(item.status)}`)), " ",
      item.error && item.kind !== "ending" && h("span.wrong", null, h("code", null, item.error.class), ` ${item.error.message} `),
      item.until && isOpen(item) ? h("span.sub", null, UNTIL[item.id.split(":", 1)[0]] ?? "given up ", until(item.until), " ") : null,
      h("span.sub", null, textOf(item))),
    h("span.cell.when", { "aria-hidden": "true" }, h("span", { class: `when-bar is-${item.mark}` })),
    h("span.cell.number.time", null, (item.ended_at || isOpen(item)) && !AT_ONCE.has(item.kind) ? took(item.started_at, item.ended_at) : null),
    h("span.cell.number.spent", null, item.usage?.cost_usd ? usd(item.usage.cost_usd) : item.usage?.input_tokens ? [tokens(item.usage.input_tokens + item.usage.output_tokens), h("span.unit", null, " tok")] : null),
  ];
  const target = item.step && item.kind !== "wait" ? { step: item.step } : item.call ? { call: item.call } : null;
  const inside = target ? h("a.line.item", { href: hashOf(["runs", item.run_id], target), "data-line": true }, content) : h("button.line.item", { type: "button", "data-line": true, "aria-expanded": "false", on: { click: unfold } }, content);
  const told = h("li", { class: `item-${item.kind}${item.depth ? " inside" : ""}` }, inside);
  told.style.setProperty("--depth", item.depth);
  return told;
}

/** Toggles between the whole text of a line and its beginning. */
function unfold({ currentTarget: line }) {
  line.setAttribute("aria-expanded", String(line.classList.toggle("whole")));
}
