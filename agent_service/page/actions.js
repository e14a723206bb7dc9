/**
 * What a person can do about a run or a dead letter: each says before what it will do, and does it only then. Shared by
 * the inbox and the page of a run.
 */

import { call, freshId, glance } from "./api.js";
import { confirm, field, say } from "./dialogs.js";
import { h } from "./dom.js";
import { go } from "./routes.js";
import { instant } from "./words.js";

const LIMITS = [
  ["max_steps", "Steps", "1", "budget_steps"], ["max_tokens", "Tokens", "1", "budget_tokens"],
  ["max_cost_usd", "Cost in US dollars", "any", "budget_cost"], ["max_reframes", "Reframes", "1", "budget_reframes"],
];

/** By name: {label, scope, danger?, run(subject)}; a subject has run_id, and seq for a letter, class and goal for a run. */
const ACTIONS = {
  message: { label: "Message", scope: "control", run: tell },
  resume: { label: "Resume", scope: "control", run: resume },
  raise_budget: { label: "Raise the budget", scope: "control", run: raise },
  reject: { label: "Reject", scope: "control", danger: true, run: reject },
  cancel: { label: "Cancel", scope: "control", danger: true, run: cancel },
  start_again: { label: "Start again", scope: "wake", run: startAgain },
  dismiss: { label: "Dismiss", scope: "control", run: dismiss },
  retry: { label: "Send it again", scope: "control", run: (subject) => letter(subject, "retry") },
  discard: { label: "Discard", scope: "control", danger: true, run: (subject) => letter(subject, "discard") },
};

/** Buttons for the actions of these names, `loud` if one of them is to be done; `done` is called after one that was. */
export function buttons(page, names, subject, { done, loud = false }) {
  return names.filter((name) => name in ACTIONS).map((name, place) => {
    const { label, scope, danger, run } = ACTIONS[name];
    const press = async () => (await run(subject)) && done();
    const allowed = page.may(scope);
    const style = danger ? "danger-quiet" : place === 0 && loud ? "primary" : "plain";
    return h("button", { type: "button", class: style, disabled: !allowed, title: allowed ? null : `needs a token with the scope ${scope}`, on: { click: press } }, label);
  });
}

const runs = (run_id, rest) => `v1/runs/${encodeURIComponent(run_id)}/${rest}`;
const signal = (run_id, body) => call(runs(run_id, "signals"), { body: { signal_id: freshId(), ...body } });

function tell({ run_id }) {
  const message = field("message", "What it should know", { kind: "area", maxlength: 8192, required: true });
  const act = async (values) => {
    if (!values.message) throw new Error("Write what it should know.");
    await signal(run_id, { kind: "message", message: values.message });
    say("The run has heard the message.");
  };
  return confirm({ title: "Send a message", text: "The run reads it before its next decision. It does not interrupt a tool that is under way.", fields: [message], action: "Send", act });
}

function resume({ run_id }) {
  const act = () => signal(run_id, { kind: "resume" });
  return confirm({ title: "Resume this run", text: "It goes on where it stopped: an open model call is made again, and may cost again. No finished step is repeated.", action: "Resume", act });
}

async function raise({ run_id, class: reached }) {
  const budget = (await glance(`v1/runs/${encodeURIComponent(run_id)}`))?.budget ?? {};
  const sorted = [...LIMITS].sort((one, other) => (other[3] === reached) - (one[3] === reached));
  const fields = sorted.map(([name, label, step]) => field(name, `${label}, in all`, { kind: "number", min: "0", step, inputmode: "decimal", hint: soFar(budget, name) }));
  const deadline = field("deadline_at", "Until", { kind: "datetime-local", hint: budget.deadline_at && `Now until ${instant(budget.deadline_at)}.` });
  if (reached === "budget_time") fields.unshift(deadline);
  else fields.push(deadline);
  const act = (values) => {
    const constraints = limitsOf(values);
    if (!Object.keys(constraints).length) throw new Error("Fill in what it may spend in all.");
    return signal(run_id, { kind: "raise_budget", constraints });
  };
  return confirm({ title: "Raise the budget", text: "A paused run goes on at once and may spend up to the new limits. What is left empty stays as it is.", fields, action: "Raise", act });
}

function soFar(budget, name) {
  const used = budget[name.replace("max_", "")];
  if (used === undefined) return "";
  return budget[name] ? `${used} of ${budget[name]} are used.` : `${used ?? 0} so far, without a limit.`;
}

/** Filled-in limits as the API takes them; empty ones are left out. */
export function limitsOf(values) {
  const given = LIMITS.filter(([name]) => values[name]).map(([name]) => [name, Number(values[name])]);
  if (values.deadline_at) given.push(["deadline_at", new Date(values.deadline_at).toISOString()]);
  return Object.fromEntries(given);
}

/** The fields of the limits, for a form. */
export function limitFields() {
  const deadline = field("deadline_at", "Until", { kind: "datetime-local" });
  return [...LIMITS.map(([name, label, step]) => field(name, `At most: ${label.toLowerCase()}`, { kind: "number", min: "0", step, inputmode: "decimal" })), deadline];
}

function reject({ run_id }) {
  const message = field("message", "Why", { kind: "area", maxlength: 1024, hint: "It is kept in the journal." });
  const act = (values) => signal(run_id, { kind: "reject", ...(values.message && { message: values.message }) });
  return confirm({ title: "Reject", text: "The run ends now and is cancelled. This cannot be undone.", fields: [message], action: "Reject and end it", danger: true, act });
}

function cancel({ run_id }) {
  const reason = field("reason", "Why", { kind: "area", maxlength: 1024, hint: "It is kept in the journal." });
  const act = async (values) => {
    await call(runs(run_id, "cancel"), { body: values.reason ? { reason: values.reason } : {} });
    say("The run is cancelled.");
  };
  return confirm({ title: "Cancel this run", text: "It ends now and cannot go on. A tool that is under way may still finish: what it brings is recorded and ignored.", fields: [reason], action: "Cancel the run", danger: true, act });
}

async function startAgain({ run_id }) {
  go(["new"], { again: run_id });
  return null;
}

function dismiss({ run_id }) {
  const act = () => call(runs(run_id, "dismiss"), { body: {} });
  return confirm({ title: "Dismiss", text: "It leaves the inbox. The run stays as it ended, with all its files.", action: "Dismiss", act });
}

function letter({ seq }, what) {
  const act = () => call(`v1/dead-letters/${seq}/${what}`, { body: {} });
  if (what === "retry") return confirm({ title: "Send it again", text: "The message goes onto the bus once more, as it was. If what refused it is not mended, it comes back here.", action: "Send it again", act });
  return confirm({ title: "Discard", text: "Nobody will act on this message any more, and it cannot be had back. That you did this is kept.", action: "Discard", danger: true, act });
}
