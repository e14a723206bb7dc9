/** One run, live: its head, its definition of done and budget, and its parts (timeline, pages, files, journal). */

import { call } from "../api.js";
import { say } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { hashOf, here, replace } from "../routes.js";
import { follow } from "../stream.js";
import { FINAL, capital } from "../words.js";
import { FilesPart, PagePart } from "./files.js";
import { JournalPart } from "./journal.js";
import { callDrawer, stepDrawer, whyDrawer } from "./drawers.js";
import { runHead } from "./run_head.js";
import { runSide } from "./run_side.js";
import { TimelinePart } from "./timeline.js";

const SOON_MS = 300;
const RESTS = 4;
const PARTS = {
  timeline: ["Timeline", (run) => new TimelinePart(run)],
  plan: ["Plan", (run) => new PagePart(run, "plan.md")],
  memory: ["Memory", (run) => new PagePart(run, "memory.md")],
  decisions: ["Decisions", (run) => new PagePart(run, "decisions.md")],
  files: ["Artifacts", (run) => new FilesPart(run)],
  journal: ["Journal", (run) => new JournalPart(run)],
};

const DRAWERS = { step: stepDrawer, call: callDrawer, why: whyDrawer };

export class RunView {
  constructor(page, id) {
    Object.assign(this, { page, id, told: null, met: null, stream: null, listening: "", pause: SOON_MS });
    this.head = h("div");
    this.side = h("aside.side", { "aria-label": "Goal and budget" });
    this.tabs = h("nav.tabs", { "aria-label": "Parts of the run" });
    this.panel = h("section.panel", { "aria-label": "Timeline" });
    this.word = h("div");
    this.body = h("div.run-body", { hidden: true }, h("div.run-main", null, this.tabs, this.panel), this.side);
    this.node = h("article.run-view", null, this.word, this.head, this.body);
  }

  path(rest) {
    return `v1/runs/${encodeURIComponent(this.id)}${rest}`;
  }

  async show({ path, query }) {
    this.name = path[2] in PARTS ? path[2] : "timeline";
    if (!this.told && !(await this.load())) return;
    this.showPart();
    this.showDrawer(query);
    this.listen();
  }

  async load() {
    const found = await this.page.tried(this.word, () => call(this.path("")));
    if (!found || this.closed) return false;
    fill(this.word);
    const ended = this.told && !FINAL.has(this.told.status) && FINAL.has(found.status);
    this.told = found;
    this.body.hidden = false;
    this.page.title(`${capital(found.status)}: ${found.goal.slice(0, 60)}`);
    runHead(this.head, this.page, found, () => this.heard());
    runSide(this.side, found, this.newlyMet(found, ended));
    return true;
  }

  /** Items of the definition of done that were met while the page was open: it animates and announces them. */
  newlyMet(run, ended) {
    const met = new Set(run.definition_of_done.filter((item) => item.done).map((item) => item.id));
    const fresh = this.met ? run.definition_of_done.filter((item) => item.done && !this.met.has(item.id)) : [];
    const done = fresh.length ? `${met.size} of ${run.definition_of_done.length} done: ${fresh.map((item) => item.text).join("; ")}. ` : "";
    if (done || ended) say(done + (ended ? `The run is ${run.status}.` : ""));
    this.met = met;
    return new Set(fresh.map((item) => item.id));
  }

  /** Follows a run that goes on, and an escalated one, which a person may answer. */
  listen() {
    const wanted = FINAL.has(this.told.status) ? (this.told.reopens_until ? "answer" : "nothing") : "run";
    if (wanted === this.listening) return;
    this.stream?.close();
    this.listening = wanted;
    this.stream = { run: () => this.follow(), answer: () => this.awaitAnswer(), nothing: () => null }[wanted]();
    if (!this.stream) this.page.live("over");
  }

  follow() {
    const lastId = this.part.seen?.() ?? "";
    const heard = () => this.heard();
    return follow(this.path("/events"), { lastId, opened: heard, told: heard, state: (state) => this.page.live(state) });
  }

  awaitAnswer() {
    const told = ({ data }) => data.run.run_id === this.id && this.heard();
    return follow("v1/events", { resume: false, opened: () => this.heard(), told, state: (state) => this.page.live(state) });
  }

  /** Refreshes after an event, once for all events within a while, which grows with the duration of a refresh. */
  heard() {
    this.timer ??= setTimeout(async () => {
      this.timer = undefined;
      const begun = performance.now();
      if (this.closed || !(await this.load())) return;
      await this.part.refresh();
      this.pause = Math.max(SOON_MS, RESTS * (performance.now() - begun));
      this.listen();
    }, this.pause);
  }

  showPart() {
    const here = (name) => hashOf(["runs", this.id, ...(name === "timeline" ? [] : [name])]);
    fill(this.tabs, Object.entries(PARTS).map(([name, [title]]) => h("a", { href: here(name), "aria-current": name === this.name ? "page" : null }, title)));
    if (this.part?.name === this.name) return;
    this.part?.close?.();
    const [title, make] = PARTS[this.name];
    this.part = Object.assign(make(this), { name: this.name });
    this.panel.setAttribute("aria-label", title);
    fill(this.panel, this.part.node);
    this.part.refresh();
  }

  showDrawer(query) {
    const [name, number] = [...query].find(([key]) => key in DRAWERS) ?? [];
    const wanted = name ? `${name} ${number}` : "";
    if (wanted === this.drawn) return;
    this.drawn = "";
    this.drawer?.close();
    if (!wanted) return;
    const closed = () => this.drawn === wanted && this.leaveDrawer();
    this.drawer = DRAWERS[name](this, number, closed);
    this.drawn = wanted;
  }

  leaveDrawer() {
    this.drawn = "";
    const { path } = here();
    if (!this.closed && path[1] === this.id) replace(path);
  }

  close() {
    this.closed = true;
    this.stream?.close();
    this.part?.close?.();
    this.drawer?.close();
    clearTimeout(this.timer);
  }
}
