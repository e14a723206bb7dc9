/** The side of a run: its definition of done with the proof of each item, and its budget. */

import { now, until } from "../clock.js";
import { fill, h, list } from "../dom.js";
import { icon } from "../icons.js";
import { hashOf } from "../routes.js";
import { FINAL, duration, tokens, usd } from "../words.js";

const NEARLY = 0.8;

/** Draws it into `side`. `fresh`: ids of items that were met just now. */
export function runSide(side, run, fresh) {
  if (!side.firstChild) fill(side, h("section.done", null, h("h2"), h("ul.checks")), h("section.budget"));
  const [done, budget] = side.children;
  const items = run.definition_of_done;
  fill(done.firstChild, "Definition of done", items.length ? h("span.number", null, `${items.filter((item) => item.done).length} of ${items.length}`) : null);
  list(done.lastChild, items.length ? items : [{ id: "none", text: "Not framed yet.", none: true }], (item) => item.id, (item) => check(run, item, fresh.has(item.id)));
  list(budget, [{ run, final: FINAL.has(run.status) }], () => "budget", spent);
}

function check(run, item, fresh) {
  if (item.none) return h("li.quiet", null, item.text);
  const proofs = (item.evidence ?? []).map((proof, place) => [evidence(run, proof), quote(item.quotes?.[place])]);
  return h("li", { class: [item.done ? "met" : "unmet", fresh && "fresh"].filter(Boolean).join(" ") },
    icon(item.done ? "met" : "unmet"), h("span.unseen", null, item.done ? "met: " : "open: "),
    h("span.told", null, item.text, proofs.length ? h("span.proofs", null, "by ", proofs) : null));
}

/** Links a proof to its step or file. */
function evidence(run, proof) {
  const step = /^step:(\d+)$/.exec(proof);
  if (step) return h("a", { href: hashOf(["runs", run.run_id], { step: step[1] }) }, `step ${step[1]}`);
  if (run.artifacts.includes(proof)) return h("a", { href: hashOf(["runs", run.run_id, "files"], { file: proof }) }, proof.replace("artifacts/", ""));
  return h("span", null, proof === "person" ? "what a person said" : proof);
}

/** The quote that proves the item. */
const quote = (words) => (words ? h("q.quote", null, words) : null);

function spent({ run, final }) {
  const { budget, usage } = run;
  const price = usage.calls && usage.cost_usd === null ? "unknown" : usd(usage.cost_usd);
  return h("div", null,
    h("h2", null, "Budget"),
    time(run),
    bar("Steps", budget.steps, budget.max_steps, String),
    bar("Tokens", budget.tokens, budget.max_tokens, tokens),
    bar("Cost", budget.cost_usd, budget.max_cost_usd, (amount) => (amount === null ? price : usd(amount))),
    budget.max_reframes ? bar("Reframes", budget.reframes, budget.max_reframes, String) : null,
    h("dl.usage", null,
      term("Model calls", String(usage.calls)),
      term("In, out", `${tokens(usage.input_tokens)}, ${tokens(usage.output_tokens)}`),
      usage.cache_read_tokens ? term("From the cache", `${Math.round((100 * usage.cache_read_tokens) / usage.input_tokens)} %`) : null,
      usage.lost_calls ? term("Perhaps lost", `${usage.lost_calls} calls, ${tokens(usage.lost_tokens)} tokens`) : null,
      final ? null : term("Deadline", until(budget.deadline_at))));
}

function time(run) {
  const begun = Date.parse(run.accepted_at);
  const used = (run.ended_at ? Date.parse(run.ended_at) : now()) - begun;
  return bar("Time", used, Date.parse(run.budget.deadline_at) - begun, duration);
}

const term = (name, value) => [h("dt", null, name), h("dd.number", null, value)];

function bar(name, used, most, say) {
  const share = most ? Math.min(1, (used ?? 0) / most) : 0;
  const text = most ? [say(used ?? 0), h("span.of", null, ` of ${say(most)}`)] : [say(used)];
  const fill = h("span.bar-fill", { class: `bar-fill ${share >= 1 ? "full" : share >= NEARLY ? "nearly" : ""}` });
  fill.style.setProperty("--share", share);
  const track = most && h("span.bar-track", { role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": most, "aria-valuenow": used ?? 0, "aria-valuetext": `${say(used ?? 0)} of ${say(most)}` }, fill);
  return h("div.bar-row", null, h("span", null, name), h("span.number", null, text), track);
}
