/** The list of runs: filters kept in the address, pages, counts, and live lines. */

import { call, glance } from "../api.js";
import { since, took } from "../clock.js";
import { fill, h, list } from "../dom.js";
import { icon } from "../icons.js";
import { hashOf, replace } from "../routes.js";
import { follow } from "../stream.js";
import { FINAL, STATES, capital, plural, stateMark, tokens, usd, waitsFor } from "../words.js";

const PER_PAGE = 50;
const TYPED_MS = 250;
const COUNTED_MS = 1500;
const NEWS_MS = 200;
const LEAVES_MS = 4000;
const FAR_DOWN = 80;
const SINCE = [["", "any time"], ["1h", "the last hour"], ["24h", "the last day"], ["168h", "the last week"]];

export class RunsView {
  constructor(page) {
    this.page = page;
    this.shown = [];
    this.before = new Map();
    this.news = new Map();
    this.chips = h("div.chips", { role: "group", "aria-label": "States" });
    this.lines = h("ol.lines", { "aria-label": "Runs" });
    this.fresh = h("div.newer", { "aria-live": "polite" });
    this.foot = h("nav.pager", { "aria-label": "Pages of the list" });
    this.word = h("div");
    this.text = this.filter("text", { type: "search", placeholder: "goal, summary or run id", "data-filter": true });
    this.tool = this.filter("tool", { type: "search", placeholder: "any", spellcheck: "false" });
    this.when = h("select", { id: "filter-since", on: { change: () => this.narrow({ since: this.when.value }) } }, SINCE.map(([value, name]) => h("option", { value }, name)));
    this.node = h("div.runs", null, this.head(), this.chips, this.fresh, this.lines, this.word, this.foot);
  }

  head() {
    const filters = h("form.filters", { role: "search", on: { submit: (event) => event.preventDefault() } },
      h("div.find", null, icon("search"), h("label.unseen", { for: "filter-text" }, "Find runs"), this.text),
      h("div.narrow", null, h("label", { for: "filter-tool" }, "Tool"), this.tool),
      h("div.narrow", null, h("label", { for: "filter-since" }, "Since"), this.when));
    return h("header.view-head", null, h("h1", { tabindex: -1 }, "Runs"), filters);
  }

  filter(name, attributes) {
    let timer = 0;
    const typed = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.narrow({ [name]: input.value.trim() }), TYPED_MS);
    };
    const input = h("input", { id: `filter-${name}`, autocomplete: "off", ...attributes, on: { input: typed } });
    return input;
  }

  /** Shows an address, whose `query` has status (several), text, tool, since, cursor. */
  async show({ query }) {
    this.query = query;
    for (const [input, name] of [[this.text, "text"], [this.tool, "tool"], [this.when, "since"]]) {
      if (document.activeElement !== input) input.value = query.get(name) ?? "";
    }
    this.drawChips();
    this.stream ??= follow("v1/events", { resume: false, opened: () => this.load(), told: ({ data }) => this.heard(data), state: (state) => this.page.live(state) });
    await this.load();
  }

  narrow(change) {
    const query = new URLSearchParams(this.query);
    query.delete("cursor");
    for (const [name, value] of Object.entries(change)) value ? query.set(name, value) : query.delete(name);
    replace(["runs"], query);
  }

  async load() {
    const asked = this.query;
    const filters = { status: asked.getAll("status"), text: asked.get("text"), tool: asked.get("tool"), since: instantOf(asked.get("since")) };
    const found = await this.page.tried(this.word, () => call("v1/runs", { query: { ...filters, limit: PER_PAGE, cursor: asked.get("cursor") } }));
    if (!found || asked !== this.query) return;
    this.shown = found.runs;
    this.next = found.next_cursor;
    if (this.next) this.before.set(this.next, asked.get("cursor") ?? "");
    this.waiting = new Set();
    this.draw();
    this.count();
    this.page.back(this.lines);
  }

  draw() {
    list(this.lines, nested(this.shown), (run) => run.run_id, line);
    fill(this.word, this.shown.length ? null : this.nothing());
    const cursor = this.query.get("cursor");
    const newer = cursor && this.turn("Newer", this.before.get(cursor) ?? "", "prev");
    fill(this.foot, newer, this.next && this.turn("Older", this.next, "next"));
    fill(this.fresh, this.waiting.size > 0 && h("button.pill", { type: "button", on: { click: () => this.toTop() } }, `${plural(this.waiting.size, "newer run")}: show`));
  }

  turn(name, cursor, rel) {
    const query = new URLSearchParams(this.query);
    cursor ? query.set("cursor", cursor) : query.delete("cursor");
    return h("a.button", { href: hashOf(["runs"], query), rel }, name);
  }

  toTop() {
    window.scrollTo({ top: 0 });
    this.query.has("cursor") ? this.narrow({}) : this.load();
  }

  nothing() {
    if ([...this.query.keys()].length) return h("div.empty", null, h("p", null, "No run fits these filters."), h("p", null, h("a.button", { href: "#/runs" }, "Show all runs")));
    return h("div.empty", null, h("p", null, "There are no runs yet."), h("p", null, h("a.button.primary", { href: "#/new" }, "Start a run")));
  }

  /** Takes an event of any run. It draws a few times a second at most. */
  heard({ run }) {
    this.news.set(run.run_id, run);
    this.drawing ??= setTimeout(() => {
      this.drawing = undefined;
      const changed = [...this.news.values()].filter((one) => this.takeUp(one));
      this.news.clear();
      if (changed.length) this.draw();
      this.countSoon();
    }, NEWS_MS);
  }

  /** Changes a run's line, or inserts it unless that disturbs a reader. Returns true if something must be drawn. */
  takeUp(run) {
    const place = this.shown.findIndex((one) => one.run_id === run.run_id);
    if (place >= 0) this.shown[place] = run;
    else if (this.query.has("cursor") || !this.fits(run)) return false;
    else if (window.scrollY > FAR_DOWN || this.lines.matches(":hover")) this.waiting.add(run.run_id);
    else this.shown = [run, ...this.shown].sort(newestFirst).slice(0, PER_PAGE);
    if (!this.fits(run)) this.leaving ??= setTimeout(() => this.leave(), LEAVES_MS);
    return true;
  }

  /** Removes lines that no longer fit the filters, after a moment, except one that has the focus. */
  leave() {
    this.leaving = undefined;
    this.shown = this.shown.filter((run) => this.fits(run) || document.activeElement?.closest("li")?.dataset.key === run.run_id);
    this.draw();
  }

  fits(run) {
    const states = this.query.getAll("status");
    const text = (this.query.get("text") ?? "").toLowerCase();
    const tool = this.query.get("tool");
    return (!states.length || states.includes(run.status)) && (!tool || run.tool === tool) && [run.goal, run.summary, run.run_id].some((one) => one.toLowerCase().includes(text));
  }

  countSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.count();
    }, COUNTED_MS);
  }

  async count() {
    this.counts = await glance("v1/counts");
    if (this.counts?.needs_person !== this.stopped) this.page.recount();
    this.stopped = this.counts?.needs_person;
    this.drawChips();
  }

  drawChips() {
    const chosen = new Set(this.query.getAll("status"));
    list(this.chips, STATES.map((state) => ({ state, on: chosen.has(state), count: this.counts?.by_status[state] ?? null })), (one) => one.state, (one) => this.chip(one, chosen));
  }

  chip({ state, on, count }) {
    const press = () => {
      const query = new URLSearchParams(this.query);
      const others = query.getAll("status").filter((one) => one !== state);
      query.delete("status");
      query.delete("cursor");
      [...others, ...(on ? [] : [state])].forEach((one) => query.append("status", one));
      replace(["runs"], query);
    };
    return h("button.chip", { type: "button", "aria-pressed": String(on), on: { click: press } }, stateMark(state), count !== null && h("span.number", null, count.toLocaleString()));
  }

  close() {
    this.stream?.close();
    clearTimeout(this.timer);
    clearTimeout(this.drawing);
    clearTimeout(this.leaving);
  }
}

/** Ids begin with the time of acceptance. */
const newestFirst = (one, other) => (one.run_id < other.run_id ? 1 : -1);

function instantOf(hours) {
  return hours ? new Date(Date.now() - parseInt(hours, 10) * 3_600_000).toISOString() : null;
}

/** Each child under its parent, if the parent is in the list. */
function nested(runs, parent = null, depth = 0) {
  const here = new Set(runs.map((run) => run.run_id));
  const parentOf = (run) => (here.has(run.parent_run_id) ? run.parent_run_id : null);
  return runs.filter((run) => parentOf(run) === parent).flatMap((run) => [{ ...run, depth, alone: !depth && Boolean(run.parent_run_id) }, ...nested(runs, run.run_id, depth + 1)]);
}

/** One run as a line; its whole text is the name of the link. */
function line(run) {
  const cells = [
    h("span.cell.state", null, stateMark(run.status)),
    h("span.cell.what", null, h("span.goal", null, run.goal), h("span.sub", null, run.alone && `child of ${run.parent_run_id.slice(-6)} · `, second(run))),
    h("span.cell.tool", null, run.tool),
    h("span.cell.number.steps", null, run.steps !== undefined && plural(run.steps, "step")),
    h("span.cell.number.spent", null, run.tokens ? h("span", null, tokens(run.tokens), h("span.unit", null, " tokens")) : null, run.cost_usd ? h("span.sub", null, usd(run.cost_usd)) : null),
    h("span.cell.number.time", null, FINAL.has(run.status) ? took(run.accepted_at, run.ended_at ?? run.updated_at) : took(run.accepted_at), h("span.sub", null, since(run.accepted_at))),
  ];
  const shown = h("li", { class: run.depth ? "inside" : null }, h("a.line.run", { href: hashOf(["runs", run.run_id]), "data-line": true }, cells));
  shown.style.setProperty("--depth", run.depth);
  return shown;
}

function second(run) {
  if (run.damaged) return `cannot be read: ${run.damaged}`;
  const waits = capital(waitsFor(run.waiting_for));
  return run.status === "running" && waits && run.waiting_for.kind !== "time" ? waits : run.summary || waits;
}
