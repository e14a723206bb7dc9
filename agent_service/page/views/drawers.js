/** Details of a line of the timeline: a step with its arguments and results, a call with its prompt and reply. */

import { call } from "../api.js";
import { overlay } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { hashOf } from "../routes.js";
import { duration, instant, itemMark, tokens, usd } from "../words.js";
import { remedy } from "./run_head.js";
import { facts, text, value } from "./values.js";

/** Calls `closed` after the drawer closes. */
export function stepDrawer(run, number, closed) {
  return drawer(run, `Step ${number}`, `/steps/${encodeURIComponent(number)}`, closed, ({ executor, parts }) => {
    const [{ item, about }] = parts;
    const tasks = parts.filter((part) => part.item.kind === "task");
    return [
      h("p.lead", null, h("code", null, `${item.tool} ${item.command}`), executor ? ` by ${executor}` : null),
      facts([["Why", about.rationale], ["Expected", about.expected], ["Risk", about.risk], ["Allowed by", about.approved_by], ["Run", related(item.child_run_id)]]),
      section("Arguments", value(about.arguments)),
      tasks.length ? section("What it gathered", tasks.map((task) => taskOf(run, task, parts))) : null,
      attemptsOf(run, item, parts),
    ];
  });
}

const related = (run_id) => run_id && h("a", { href: hashOf(["runs", run_id]) }, run_id);

/** The attempts, newest first, and the wait before the next one. */
const attemptsOf = (run, item, parts) => parts.filter((part) => part.item.parent === item.id && (part.item.kind === "attempt" || (part.item.kind === "wait" && !part.item.ended_at))).reverse().map((part) => attemptOf(run, part));

/** A task of a step, folded and indented by its depth. */
function taskOf(run, { item: task, about }, parts) {
  const attempts = attemptsOf(run, task, parts);
  const told = h("details.task", null,
    h("summary", null, itemMark(task.status), h("span", null, h("strong", null, task.task), ` ${task.tool} ${task.command}`, h("span.sub", null, about.query || task.summary))),
    facts([["Why", about.reason], ["Depends on", about.needs?.join(", ")], ["Allowed by", about.approved_by], ["Run", related(task.child_run_id)]]),
    task.error && !attempts.length ? h("div.callout.bad", null, h("p", null, h("code", null, task.error.class)), text(task.error.message)) : null,
    about.arguments && Object.keys(about.arguments).length ? section("Arguments", value(about.arguments)) : null,
    attempts);
  told.style.setProperty("--depth", task.task.split(".").length - 1);
  return told;
}

function attemptOf(run, { item: attempt, result }) {
  const { excerpt, artifact_path: path, ...rest } = result ?? {};
  const open = !attempt.ended_at;
  const took = open ? "" : duration(Date.parse(attempt.ended_at) - Date.parse(attempt.started_at));
  const { stderr, ...ran } = attempt.execution ?? {};
  return section([`Attempt ${attempt.attempt}`, h("span.quiet", null, [attempt.status, took].filter(Boolean).join(" · "))],
    facts([["Asked", instant(attempt.started_at)], [attempt.status === "waiting" ? "Sent again" : "Answer due", open && attempt.until ? instant(attempt.until) : ""], ["Ran", Object.entries(ran).filter(([, one]) => one !== null).map(([name, one]) => `${name.replace("_", " ")} ${one}`).join(", ")]]),
    stderr && text(stderr),
    attempt.error && h("div.callout.bad", null, h("p", null, h("code", null, attempt.error.class), " ", attempt.error.retryable ? "may be tried again" : "is not tried again"), text(attempt.error.message)),
    path && h("p", null, "All of it: ", h("a", { href: hashOf(["runs", run.id, "files"], { file: path }) }, path)),
    excerpt && text(excerpt),
    Object.keys(rest).length ? value(rest) : null);
}

export function callDrawer(run, number, closed) {
  return drawer(run, `Model call ${number}`, `/calls/${encodeURIComponent(number)}`, closed, ({ item, reply, ...told }) => [
    h("p.lead", null, item.model, h("span.quiet", null, ` · ${item.phase}${told.with_plan && item.phase !== "plan" ? " and plan" : ""}`)),
    facts([["Asked", instant(item.started_at)], ["Took", item.ended_at && duration(Date.parse(item.ended_at) - Date.parse(item.started_at))], ["Spent", spent(reply?.usage)], ["What came of it", told.outcome]]),
    replied(reply),
    section("What it was told", told.prompt_note && h("p.quiet", null, told.prompt_note), ["system", "user"].map((role) => told.prompt[role].map((part) => h("section.message", null, h("h4", null, role), text(part))))),
    reply?.provenance && section("Where the reply comes from", value(reply.provenance)),
  ]);
}

/** The diagnosis of a run (`why`). */
export function whyDrawer(run, _, closed) {
  return drawer(run, "Why does it wait?", "/why", closed, (why) => [
    h("p.lead.told", null, why.verdict),
    why.remedy && remedy(why.remedy),
    why.waiting_for && facts([["Waits for", why.waiting_for.text], ["Since", instant(why.waiting_for.since)], ["Until", why.waiting_for.until && instant(why.waiting_for.until)]]),
    section("What was found", facts(why.facts.map((fact) => [fact.what, fact.text]))),
  ]);
}

/** The decision of a call, and the plan that came with it. */
function replied(reply) {
  if (!reply) return section("What it said", h("p.quiet", null, "Nothing yet."));
  const { decision, plan } = reply;
  return [section("What it said", value(decision)), plan && section("And the next action", value(plan))];
}

function spent(usage) {
  if (!usage) return "";
  const cache = usage.cache_read_tokens ? ` (${tokens(usage.cache_read_tokens)} from the cache)` : "";
  return [`${tokens(usage.input_tokens)} tokens in${cache}, ${tokens(usage.output_tokens)} out`, usd(usage.cost_usd)].filter(Boolean).join(", ");
}

const section = (title, ...children) => h("section.behind", null, h("h3", null, title), children);

function drawer(run, title, path, closed, draw) {
  const body = h("div.stack", null, h("p.quiet", null, "Loading…"));
  const shown = overlay(title, body, { kind: "drawer", closed });
  run.page.tried(body, () => call(run.path(path))).then((told) => told && fill(body, draw(told)));
  return shown;
}
