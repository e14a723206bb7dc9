/** The head of a run: goal, status, and the actions that are due. */

import { buttons } from "../actions.js";
import { now, since, took, until } from "../clock.js";
import { copyButton } from "../copying.js";
import { folded, h, list } from "../dom.js";
import { icon } from "../icons.js";
import { hashOf } from "../routes.js";
import { FINAL, capital, stateMark, waitsFor } from "../words.js";
import { asked, replies } from "./asks.js";

const ASKED = { approval: "It asks for approval", question: "It asks", in_doubt: "Was this done?" };
const HEADINGS = { paused: "Why it paused", escalated: "Why it escalated", failed: "Why it failed", cancelled: "Why it was cancelled" };
const ANSWERED = new Set(["approval", "question"]);
const STUCK = new Set(["paused", "escalated", "failed"]);

/** Draws into `head` the parts that have changed. Calls `done` after an action. */
export function runHead(head, page, run, done) {
  const { run_id, parent_run_id, children, status, goal, accepted_at, ended_at, waiting_for, pending, models, trace_url, outcome, reason, remedy, asks, reopens_until } = run;
  const parts = [
    { part: "title", run_id, parent_run_id, goal, status, class: run.class, asks, reopens_until },
    { part: "facts", run_id, children, status, accepted_at, ended_at, waiting_for, pending, models, trace_url, reopened: run.reopened, deadline_at: run.budget.deadline_at },
    { part: "callout", run_id, status, class: run.class, outcome, reason, remedy, asks, reopens_until, stopped: run.stopped, summary: FINAL.has(status) ? run.summary : "" },
  ];
  const draw = { title: (one) => title(page, one, done), facts, callout: (one) => callout(page, one, done) };
  list(head, parts, (one) => one.part, (one) => draw[one.part](one));
}

function title(page, run, done) {
  const parent = run.parent_run_id && [h("a", { href: hashOf(["runs", run.parent_run_id]), title: "The run that asked for this one" }, `parent ${run.parent_run_id.slice(-6)}`), slash()];
  return h("div", null,
    h("p.crumbs", null, h("a", { href: page.list }, "Runs"), slash(), parent, copied(run.run_id)),
    h("div.run-title", null, folded(h("h1", { tabindex: -1 }, run.goal), 3), h("div.buttons", null, buttons(page, [...acts(run), "export"], run, { done, loud: STUCK.has(run.status) && !run.asks && !reopens(run) }))));
}

const slash = () => h("span", { "aria-hidden": "true" }, "/");

function acts(run) {
  if (ANSWERED.has(run.asks?.kind)) return ["message", "cancel"];
  if (run.status === "paused") return run.class.startsWith("budget") ? ["raise_budget", "message", "cancel"] : ["resume", "raise_budget", "message", "cancel"];
  return FINAL.has(run.status) ? ["start_again"] : ["message", "cancel"];
}

/** True if an answer resumes the run. */
const reopens = ({ reopens_until: end }) => Boolean(end) && Date.parse(end) > now();

function facts(run) {
  const waits = FINAL.has(run.status) ? null : run.waiting_for;
  return h("p.facts", null, stateMark(run.status),
    waits && h("span", null, run.status === "paused" && !ANSWERED.has(waits.kind) ? "Waits for a person" : capital(waitsFor(waits)), " for ", took(waits.since)),
    waits?.until && waits.until !== run.deadline_at ? h("span", null, waits.kind.endsWith("retry") || waits.kind === "time" ? "goes on " : "at the latest ", until(waits.until)) : null,
    run.pending && run.pending.present === false ? h("span.warns", null, icon("escalated"), `no executor serves ${run.pending.tool} now`) : null,
    run.pending?.trouble ? h("span.warns", null, icon("escalated"), run.pending.trouble) : null,
    h("span", null, "accepted ", since(run.accepted_at)),
    h("span", null, run.ended_at ? "took " : "for ", took(run.accepted_at, run.ended_at)),
    run.reopened ? h("span", null, run.reopened === 1 ? "reopened once" : `reopened ${run.reopened} times`) : null,
    run.children.length ? h("span", null, "children ", run.children.map((child, place) => [place ? ", " : "", related(child.run_id)])) : null,
    run.models?.length ? h("span", null, run.models.join(", ")) : null,
    traced(run),
    waits && h("a", { href: hashOf(["runs", run.run_id], { why: "1" }) }, "Why?"));
}

/** A link to another run, by the end of its id. */
const related = (run_id) => h("a", { href: hashOf(["runs", run_id]), title: run_id }, run_id.slice(-6));

function traced(run) {
  if (!/^https?:\/\//i.test(run.trace_url ?? "")) return null;
  return h("a", { href: run.trace_url, target: "_blank", rel: "noopener noreferrer" }, "Trace ", icon("out"));
}

/** The ending or the reason for a stop, and the remedy. */
function callout(page, run, done) {
  const { asks } = run;
  if (run.stopped) return halted(page, run, done);
  const good = run.status === "done";
  const text = good ? run.outcome || run.summary : run.reason || run.summary;
  if (!text && !asks) return h("div");
  const kind = good ? "good" : run.status === "cancelled" ? "plain" : run.status === "failed" ? "bad" : "warn";
  const named = run.class && !good && run.class !== run.status ? h("code", null, run.class) : null;
  return h("section.callout", { class: `callout ${kind}`, "aria-label": "What to know" },
    h("h2", null, ASKED[asks?.kind] ?? HEADINGS[run.status] ?? "Outcome", named),
    asked(asks, text),
    ANSWERED.has(asks?.kind) || reopens(run) ? h("div.buttons", null, replies(page, run, done)) : run.remedy && remedy(run.remedy));
}

/** The kill switch stops everything. */
function halted(page, run, done) {
  return h("section.callout", { class: "callout warn", "aria-label": "What to know" },
    h("h2", null, "Stopped"), h("p.told", null, run.stopped), h("div.buttons", null, buttons(page, ["go_on"], run, { done, loud: true })));
}

/** The remedy without its terminal command. */
export const remedy = ({ text }) => h("p.remedy", null, h("strong", null, "What to do now: "), text);

function copied(run_id) {
  return h("span.id", null, h("code", null, run_id), copyButton(run_id, "Copy the run id"));
}
