/** The head of a run: what it is to reach, how it stands, what to do about it now. */

import { buttons } from "../actions.js";
import { now, since, took, until } from "../clock.js";
import { copyButton } from "../copying.js";
import { h, list } from "../dom.js";
import { icon } from "../icons.js";
import { hashOf } from "../routes.js";
import { FINAL, capital, stateMark, waitsFor } from "../words.js";
import { asked, replies } from "./asks.js";

const ASKED = { approval: "It asks for approval", question: "It asks", in_doubt: "Was this done?" };
const HEADINGS = { paused: "Why it paused", escalated: "Why it escalated", failed: "Why it failed", cancelled: "Why it was cancelled" };
const ANSWERED = new Set(["approval", "question"]);
const LONG_GOAL = 240;
const STUCK = new Set(["paused", "escalated", "failed"]);

/** Show it in `head`, each part anew only when what it shows has changed. `done` is called after an action. */
export function runHead(head, page, run, done) {
  const { run_id, parent_run_id, children, status, goal, accepted_at, ended_at, waiting_for, pending, models, trace_url, outcome, reason, remedy, asks, reopens_until } = run;
  const parts = [
    { part: "title", run_id, goal, status, class: run.class, asks, reopens_until },
    { part: "facts", run_id, parent_run_id, children, status, accepted_at, ended_at, waiting_for, pending, models, trace_url, reopened: run.reopened, deadline_at: run.budget.deadline_at },
    { part: "callout", run_id, status, class: run.class, outcome, reason, remedy, asks, reopens_until, stopped: run.stopped, summary: FINAL.has(status) ? run.summary : "" },
  ];
  const draw = { title: (one) => title(page, one, done), facts, callout: (one) => callout(page, one, done) };
  list(head, parts, (one) => one.part, (one) => draw[one.part](one));
}

function title(page, run, done) {
  return h("div", null,
    h("p.crumbs", null, h("a", { href: page.list }, "Runs"), h("span", { "aria-hidden": "true" }, "/"), copied(run.run_id)),
    h("div.run-title", null, goal(run.goal), h("div.buttons", null, buttons(page, acts(run), run, { done, loud: STUCK.has(run.status) && !run.asks && !reopens(run) }))));
}

function goal(text) {
  const title = h("h1", { tabindex: -1 }, text);
  if (text.length <= LONG_GOAL) return title;
  title.classList.add("clamped");
  const more = h("button.link", { type: "button", on: { click: () => (title.classList.remove("clamped"), more.remove()) } }, "Show the whole goal");
  return h("div", null, title, more);
}

function acts(run) {
  if (ANSWERED.has(run.asks?.kind)) return ["message", "cancel"];
  if (run.status === "paused") return run.class.startsWith("budget") ? ["raise_budget", "message", "cancel"] : ["resume", "raise_budget", "message", "cancel"];
  return FINAL.has(run.status) ? ["start_again"] : ["message", "cancel"];
}

/** Whether an answer sets it going again. */
const reopens = ({ reopens_until: end }) => Boolean(end) && Date.parse(end) > now();

function facts(run) {
  const waits = FINAL.has(run.status) ? null : run.waiting_for;
  return h("p.facts", null, stateMark(run.status),
    waits && h("span", null, run.status === "paused" && !ANSWERED.has(waits.kind) ? "Waits for a person" : capital(waitsFor(waits)), " for ", took(waits.since)),
    waits?.until && waits.until !== run.deadline_at ? h("span", null, waits.kind.endsWith("retry") || waits.kind === "time" ? "goes on " : "at the latest ", until(waits.until)) : null,
    run.pending && run.pending.present === false ? h("span.warns", null, icon("escalated"), `nobody serves ${run.pending.tool} now`) : null,
    run.pending?.trouble ? h("span.warns", null, icon("escalated"), run.pending.trouble) : null,
    h("span", null, "accepted ", since(run.accepted_at)),
    h("span", null, run.ended_at ? "took " : "for ", took(run.accepted_at, run.ended_at)),
    run.reopened ? h("span", null, run.reopened === 1 ? "reopened once" : `reopened ${run.reopened} times`) : null,
    run.parent_run_id ? h("span", null, "for ", related(run.parent_run_id)) : null,
    run.children.length ? h("span", null, "asked ", run.children.map((child, place) => [place ? ", " : "", related(child.run_id)])) : null,
    run.models?.length ? h("span", null, run.models.join(", ")) : null,
    traced(run),
    waits && h("a", { href: hashOf(["runs", run.run_id], { why: "1" }) }, "Why?"));
}

/** Another run, by its shortest name. */
const related = (run_id) => h("a", { href: hashOf(["runs", run_id]), title: run_id }, run_id.slice(-6));

function traced(run) {
  if (!/^https?:\/\//i.test(run.trace_url ?? "")) return null;
  return h("a", { href: run.trace_url, target: "_blank", rel: "noopener noreferrer" }, "Trace ", icon("out"));
}

/** How it ended or why it stands still, and what a person does now. */
function callout(page, run, done) {
  const { asks } = run;
  if (run.stopped) return halted(run.stopped);
  const good = run.status === "done";
  const what = asked(asks);
  const text = good ? run.outcome || run.summary : run.reason || run.summary;
  if (!text && !what) return h("div");
  const kind = good ? "good" : run.status === "cancelled" ? "plain" : run.status === "failed" ? "bad" : "warn";
  const named = run.class && !good && run.class !== run.status ? h("code", null, run.class) : null;
  return h("section.callout", { class: `callout ${kind}`, "aria-label": "What to know" },
    h("h2", null, (what && ASKED[asks.kind]) ?? HEADINGS[run.status] ?? "Outcome", named),
    what ?? h("p.told", null, text),
    ANSWERED.has(asks?.kind) || reopens(run) ? h("div.buttons", null, replies(page, run, done)) : run.remedy && remedy({ text: run.remedy.text }));
}

/** Somebody has stopped everything. */
function halted(text) {
  return h("section.callout", { class: "callout warn", "aria-label": "What to know" },
    h("h2", null, "Stopped"), h("p.told", null, text), remedy({ text: "once that is settled, let everything go on", command: "agentic go-on" }));
}

/** What to do now; `command` is for what no button does. */
export function remedy({ text, command }) {
  return h("div.remedy", null, h("p", null, h("strong", null, "What to do now: "), ticked(text)), command && h("p.command", null, h("code", null, command), copyButton(command, "Copy the command")));
}

/** Our own words, with what stands in backticks as code. */
const ticked = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));

function copied(run_id) {
  return h("span.id", null, h("code", null, run_id), copyButton(run_id, "Copy the run id"));
}
