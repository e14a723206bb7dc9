/** The journal of a run: every entry with its facts and its event, page by page, and live. */

import { call } from "../api.js";
import { fill, h, list } from "../dom.js";
import { instant } from "../words.js";
import { text } from "./values.js";

const AT_ONCE = 100;

export class JournalPart {
  constructor(run) {
    Object.assign(this, { run, entries: [], rest: true });
    this.lines = h("ol.lines.journal");
    this.word = h("div");
    this.node = h("div", null, this.lines, this.word);
  }

  seen() {
    return this.entries.at(-1)?.seq ?? "";
  }

  /** Loads the next entries. Once all are shown, new ones appear by themselves. */
  async refresh(further = false) {
    if (this.entries.length && this.rest && !further) return;
    const found = await this.run.page.tried(this.word, () => call(this.run.path("/entries"), { query: { after: this.entries.at(-1)?.seq ?? 0, limit: AT_ONCE } }));
    if (!found) return;
    const last = this.entries.at(-1)?.seq ?? 0;
    this.entries = [...this.entries, ...found.entries.filter((entry) => entry.seq > last)];
    this.rest = found.next_after !== null;
    list(this.lines, this.entries, (entry) => entry.seq, line);
    fill(this.word, this.rest && h("p", null, h("button", { type: "button", on: { click: () => this.refresh(true) } }, "Show more")));
  }
}

function line(entry) {
  const body = h("div.entry-body");
  const summary = h("summary.line.entry", { "data-line": true }, h("span.cell.number", null, String(entry.seq)), h("span.cell.kind", null, entry.kind), h("span.cell.what", null, h("span.title", null, entry.summary)), h("time.cell.number", { datetime: entry.at, title: instant(entry.at) }, new Date(entry.at).toLocaleTimeString()));
  const details = h("details", null, summary, body);
  details.addEventListener("toggle", () => details.open && !body.firstChild && fill(body, text(JSON.stringify(entry.event, null, 2)), h("p.quiet", null, "hash ", h("code", null, entry.hash))));
  return h("li", null, details);
}
