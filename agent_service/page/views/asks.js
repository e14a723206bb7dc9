/**
 * Requests of a run to a person, with the answers: approvals, questions, and writes in doubt. An approver sees the whole
 * action as it will be sent; the model's words about it are set apart.
 */

import { buttons } from "../actions.js";
import { until } from "../clock.js";
import { folded, h } from "../dom.js";
import { icon } from "../icons.js";
import { exactly, facts, inLines } from "./values.js";

const PARTS = { approval, question, in_doubt: doubt };
const REPLIES = { approval: ["approve", "reject"], question: ["answer"], in_doubt: ["ran", "did_not_run", "look"] };

/** The whole request, or else `text`; with a warning if it may come from untrusted input. */
export function asked(asks, text) {
  return h("div.ask", null, asks && PARTS[asks.kind] ? PARTS[asks.kind](asks) : folded(h("p.told", null, text), 6), asks && untrusted(asks));
}

const untrusted = (asks) => asks.untrusted && h("p.warns", null, icon("escalated"), `Untrusted content is in this run: ${asks.untrusted} brought it. Its author may be behind this.`);

/** A button for each way to answer `subject`, a run that waits for one. Calls `done` after an answer. */
export function replies(page, subject, done) {
  const kind = subject.asks?.kind;
  const offered = (subject.asks?.choices ?? []).flatMap((choice) => buttons(page, ["choose"], { ...subject, choice }, { done }));
  return [...offered, ...buttons(page, REPLIES[kind] ?? ["answer"], subject, { done, loud: kind !== "in_doubt" })];
}

function approval(asks) {
  return [action(asks), h("p.told.quiet", null, asks.reason), asks.expires_at && h("p.quiet", null, "Rejected automatically ", until(asks.expires_at), ".")];
}

function question(asks) {
  const end = asks.expires_at && until(asks.expires_at);
  return [h("p.lead.told", null, asks.question), h("p.told.quiet", null, asks.reason), facts([["Tried", asks.tried], ["Why it asks", asks.would_change], ["Expires", end]])];
}

function doubt(asks) {
  return [action(asks), h("p.told.quiet", null, asks.reason)];
}

function action(asks) {
  const what = asks.tool ? h("code", null, `${asks.tool} ${asks.command}`) : "A new framing of the goal";
  return h("section.as-sent", null, h("h3", null, what, asks.step ? h("span.quiet", null, `step ${asks.step}${asks.task ? `, ${asks.task} of round ${asks.round}` : ""}`) : null), exactly(asks.arguments_json), inLines(asks.arguments));
}
