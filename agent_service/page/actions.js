/**
 * Actions of a person on a run or a dead letter, shared by the inbox and the page of a run. Each asks for confirmation.
 */

import { answer, approve, reject, resolve } from "./answers.js";
import { call, freshId } from "./api.js";
import { save } from "./copying.js";
import { confirm, field, overlay, say } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { limitsOf, raiseFields } from "./limits.js";
import { go } from "./routes.js";
import { text } from "./views/values.js";

/**
 * By name: {label, scope, danger?, run(subject)}. A subject is a run (run_id, class, asks, perhaps choice) or a letter
 * (seq).
 */
const ACTIONS = {
  approve: { label: "Approve", scope: "control", run: approve },
  reject: { label: "Reject", scope: "control", danger: true, run: reject },
  answer: { label: "Answer", scope: "control", run: answer },
  choose: { label: (subject) => subject.choice, scope: "control", run: answer },
  ran: { label: "It ran", scope: "control", run: (subject) => resolve(subject, "ran") },
  did_not_run: { label: "It did not run", scope: "control", run: (subject) => resolve(subject, "did_not_run") },
  look: { label: "Let it look", scope: "control", run: (subject) => resolve(subject, "look") },
  message: { label: "Message", scope: "control", run: tell },
  resume: { label: "Resume", scope: "control", run: resume },
  raise_budget: { label: "Raise the budget", scope: "control", run: raise },
  cancel: { label: "Cancel", scope: "control", danger: true, run: cancel },
  start_again: { label: "Start again", scope: "wake", run: startAgain },
  dismiss: { label: "Dismiss", scope: "control", run: dismiss },
  go_on: { label: "Resume everything", scope: "operate", run: goOn },
  export: { label: "Export", scope: "read", run: exported },
  retry: { label: "Send it again", scope: "operate", run: (subject) => letter(subject, "retry") },
  discard: { label: "Discard", scope: "operate", danger: true, run: (subject) => letter(subject, "discard") },
};

/** Buttons for these actions, the first one prominent if `loud`. Calls `done` after an action. */
export function buttons(page, names, subject, { done, loud = false }) {
  return names.filter((name) => name in ACTIONS).map((name, place) => {
    const { label, scope, danger, run } = ACTIONS[name];
    const press = async () => (await run(subject)) && done();
    const allowed = page.may(scope);
    const style = danger ? "danger-quiet" : place === 0 && loud ? "primary" : "plain";
    const title = allowed ? null : `needs a token with the scope ${scope}`;
    return h("button", { type: "button", class: style, disabled: !allowed, title, on: { click: press } }, typeof label === "string" ? label : label(subject));
  });
}

const runs = (run_id, rest) => `v1/runs/${encodeURIComponent(run_id)}/${rest}`;
const signal = (run_id, body) => call(runs(run_id, "signals"), { body: { signal_id: freshId(), ...body } });

function tell({ run_id, asks }) {
  const message = field("message", "What it should know", { kind: "area", maxlength: 8192, required: true });
  const act = async (values) => {
    if (!values.message) throw new Error("Write what it should know.");
    await signal(run_id, { kind: "message", message: values.message });
    say("The run has heard the message.");
  };
  return confirm({ title: "Send a message", text: asks?.kind === "approval" ? "The run reads it and plans anew: what it asks for now is not carried out." : "The run reads it before its next decision. It does not interrupt a tool that is under way.", fields: [message], action: "Send", act });
}

function resume({ run_id }) {
  const act = () => signal(run_id, { kind: "resume" });
  return confirm({ title: "Resume this run", text: "It goes on where it stopped: an open model call is made again, and may cost again. No finished step is repeated.", action: "Resume", act });
}

async function raise(subject) {
  const act = (values) => {
    const constraints = limitsOf(values);
    if (!Object.keys(constraints).length) throw new Error("Fill in a new total.");
    return signal(subject.run_id, { kind: "raise_budget", constraints });
  };
  const text = "A paused run goes on at once and may spend up to the new limits. An empty field stays as it is.";
  return confirm({ title: "Raise the budget", text, fields: await raiseFields(subject), action: "Raise", act });
}

function cancel({ run_id }) {
  const reason = field("reason", "Why", { kind: "area", maxlength: 1024, hint: "It is kept in the journal." });
  const act = async (values) => {
    await call(runs(run_id, "cancel"), { body: values.reason ? { reason: values.reason } : {} });
    say("The run is cancelled.");
  };
  return confirm({ title: "Cancel this run", text: "It ends now and cannot go on. A tool that is under way may still finish: what it brings is recorded and ignored.", fields: [reason], action: "Cancel the run", danger: true, act });
}

function goOn() {
  const act = () => call("v1/go-on", { body: {} });
  return confirm({ title: "Resume everything", text: "All runs go on from where they were stopped.", action: "Resume everything", act });
}

/** Shows the run as JSON, with a download: view, timeline and journal. */
async function exported({ run_id }) {
  const body = h("div.stack", null, h("p.quiet", null, "Loading…"));
  overlay("The run as JSON", body, { kind: "drawer" });
  try {
    const content = JSON.stringify(await whole(run_id), null, 2);
    fill(body, h("p", null, h("button", { type: "button", on: { click: () => save(`${run_id}.json`, content) } }, "Download")), text(content));
  } catch (error) {
    fill(body, h("p.trouble", { role: "alert" }, error.message));
  }
}

async function whole(run_id) {
  const [run, timeline] = await Promise.all([call(`v1/runs/${encodeURIComponent(run_id)}`), call(runs(run_id, "timeline"))]);
  const entries = [];
  for (let after = 0; after !== null; ) {
    const page = await call(runs(run_id, "entries"), { query: { after, limit: 200 } });
    entries.push(...page.entries);
    after = page.next_after;
  }
  return { run, timeline: timeline.items, entries };
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
  if (what === "retry") return confirm({ title: "Send it again", text: "The message is published once more, as it was. It comes back here if the cause of its refusal is still there.", action: "Send it again", act });
  return confirm({ title: "Discard", text: "The message is deleted and cannot be brought back. A record of who discarded it is kept.", action: "Discard", danger: true, act });
}
