/** A person's decisions and answers: bound to the request that was shown, and stored in the journal with the name. */

import { call, freshId } from "./api.js";
import { confirm, field, say } from "./dialogs.js";
import { isSpent, limitsOf, raiseFields } from "./limits.js";

const OF_DOUBT = {
  ran: { action: "It ran", label: "What it brought", text: "The step counts as done, with what you say it brought. It is not done again." },
  did_not_run: { action: "It did not run", label: "What you found", text: "The step counts as failed, and the run decides what to do. It may do it again." },
  look: { action: "Let it look", label: "What it should know", text: "The run first reads what became of it, and may not do it again before." },
};

const path = (run_id, rest) => `v1/runs/${encodeURIComponent(run_id)}/${rest}`;

export function approve({ run_id, asks }) {
  const text = asks.tool ? `${asks.tool} ${asks.command} is carried out now, once, just as it is shown. With other arguments it would be asked for again.` : "The run goes on with this framing of its goal.";
  return confirm({ title: "Approve", text, action: "Approve it", act: () => rule(run_id, asks, "approve", "Approved.") });
}

export function reject({ run_id, asks }) {
  const reason = field("reason", "Why", { kind: "area", maxlength: 8192, hint: "The model is told, and it is kept in the journal." });
  const act = (values) => rule(run_id, asks, "reject", "Rejected.", values.reason);
  return confirm({ title: "Reject", text: "It is not carried out. The run goes on and decides what to do instead.", fields: [reason], action: "Reject it", danger: true, act });
}

/** Hashes and step of the shown request, so that the decision cannot apply to a newer one. */
const named = (asks) => Object.fromEntries(["arguments_hash", "question_hash", "step"].filter((name) => asks?.[name]).map((name) => [name, asks[name]]));

async function rule(run_id, asks, decision, said, reason) {
  await call(path(run_id, "approvals"), { body: { signal_id: freshId(), decision, ...named(asks), ...(reason && { reason }) } });
  say(said);
}

/** Answers a question, or an escalation, which resumes the run. `choice` is an offered answer. */
export async function answer(subject) {
  const { run_id, asks, choice = "" } = subject;
  const asked = asks?.kind === "question";
  const words = field("answer", asked ? "Your answer" : "What it should know", { kind: "area", maxlength: 8192, required: true, value: choice });
  const raised = !asked && isSpent(subject.class) ? await raiseFields(subject) : [];
  const act = (values) => {
    if (!values.answer) throw new Error("Write an answer.");
    return send(run_id, asks, { answer: values.answer, constraints: limitsOf(values) });
  };
  const text = asked ? "The run goes on with it at once." : raised.length ? "The run goes on where it stopped, with what you grant it." : "The run goes on where it stopped, with all that it knows and with what you say.";
  return confirm({ title: asked ? "Answer" : "Answer and reopen", text, fields: [words, ...raised], action: asked ? "Answer" : "Reopen it", act });
}

/** Resolves a write in doubt; `outcome` is a key of OF_DOUBT. */
export function resolve({ run_id, asks }, outcome) {
  const { action, label, text } = OF_DOUBT[outcome];
  const words = field("answer", label, { kind: "area", maxlength: 8192 });
  const act = (values) => send(run_id, asks, { outcome, ...(values.answer && { answer: values.answer }) });
  return confirm({ title: action, text: `${text} The run goes on.`, fields: [words], action, act });
}

async function send(run_id, asks, { constraints = {}, ...body }) {
  await call(path(run_id, "answers"), { body: { signal_id: freshId(), ...named(asks), ...body, ...(Object.keys(constraints).length && { constraints }) } });
  say("The run has heard the answer.");
}
