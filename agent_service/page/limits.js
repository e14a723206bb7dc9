/** Form fields for the limits of a run: for a new run, a larger budget, and with an answer. */

import { glance } from "./api.js";
import { field } from "./dialogs.js";
import { instant } from "./words.js";

const LIMITS = [
  ["max_steps", "Steps", "1", "budget_steps"], ["max_tokens", "Tokens", "1", "budget_tokens"],
  ["max_cost_usd", "Cost in US dollars", "any", "budget_cost"], ["max_reframes", "Reframes", "1", "budget_reframes"],
];

/** True if a run that stopped with this class needs a larger budget. */
export const isSpent = (stopped) => stopped === "budget_time" || LIMITS.some(([, , , spent]) => spent === stopped);

/** Fields for the limits of a new run. */
export function limitFields() {
  const deadline = field("deadline_at", "Until", { kind: "datetime-local" });
  return [...LIMITS.map(([name, label, step]) => field(name, `At most: ${label.toLowerCase()}`, { kind: "number", min: "0", step, inputmode: "decimal" })), deadline];
}

/** Fields for larger limits, the reached one first. */
export async function raiseFields({ run_id, class: reached }) {
  const budget = (await glance(`v1/runs/${encodeURIComponent(run_id)}`))?.budget ?? {};
  const sorted = [...LIMITS].sort((one, other) => (other[3] === reached) - (one[3] === reached));
  const fields = sorted.map(([name, label, step]) => field(name, `${label}, in all`, { kind: "number", min: "0", step, inputmode: "decimal", hint: soFar(budget, name) }));
  const deadline = field("deadline_at", "Until", { kind: "datetime-local", hint: budget.deadline_at && `Now until ${instant(budget.deadline_at)}.` });
  return reached === "budget_time" ? [deadline, ...fields] : [...fields, deadline];
}

/** The filled-in limits, as the API takes them. */
export function limitsOf(values) {
  const given = LIMITS.filter(([name]) => values[name]).map(([name]) => [name, Number(values[name])]);
  if (values.deadline_at) given.push(["deadline_at", new Date(values.deadline_at).toISOString()]);
  return Object.fromEntries(given);
}

function soFar(budget, name) {
  const used = budget[name.replace("max_", "")];
  if (used === undefined) return "";
  return budget[name] ? `${used} of ${budget[name]} are used.` : `${used ?? 0} so far, without a limit.`;
}
