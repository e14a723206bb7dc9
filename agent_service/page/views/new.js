/** Starts a run: goal, context, limits. Sent twice, it is still one run. */

import { call, freshId, glance } from "../api.js";
import { field, say } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { limitFields, limitsOf } from "../limits.js";
import { go } from "../routes.js";

const LONGEST_GOAL = 32 * 1024;

export class NewView {
  constructor(page) {
    this.page = page;
    this.wakeId = freshId();
    this.goal = field("goal", "Goal", { kind: "area", rows: 4, required: true, hint: "What to reach, and how to know that it is reached." });
    this.context = field("context", "Context", { kind: "area", rows: 4, spellcheck: "false", hint: "Background for the run: text, or a JSON object." });
    this.limits = limitFields();
    this.word = h("p.trouble", { role: "alert" });
    this.send = h("button.primary", { type: "submit" }, "Start the run");
    const limits = h("details.limits", null, h("summary", null, "Limits"), h("p.hint", null, "An empty field keeps the agent's default."), h("div.grid", null, this.limits.map((one) => one.node)));
    this.found = h("div");
    this.form = h("form.stack.new-run", { novalidate: true, on: { submit: (event) => this.submit(event) } }, this.goal.node, this.context.node, this.found, limits, this.word, h("div.buttons", null, this.send));
    this.node = h("div.new", null, h("header.view-head", null, h("h1", { tabindex: -1 }, "New run")), this.form);
  }

  async show({ query }) {
    const again = query.get("again");
    if (!again || this.filled) return this.goal.focus();
    this.filled = true;
    const found = await this.page.tried(this.word, () => call(`v1/runs/${encodeURIComponent(again)}/entries`, { query: { limit: 1 } }));
    const [accepted] = found?.entries ?? [];
    if (!accepted) return;
    const { goal, context } = accepted.event.brief;
    this.goal.input.value = goal;
    this.context.input.value = JSON.stringify({ ...context, after: again }, null, 2);
    this.goal.focus();
    await this.askWhatWasFound(again);
  }

  /** Warns before a run with a step in doubt is started again: a person must first say what became of the step. */
  async askWhatWasFound(again) {
    const run = await glance(`v1/runs/${encodeURIComponent(again)}`);
    const doubted = run?.class === "in_doubt" && run.asks;
    if (!doubted) return;
    const choices = [["", "Choose what you found"], ["was done", "It was done"], ["was not done", "It was not done"]];
    this.doubt = field(`step_${doubted.step}`, `Was step ${doubted.step} (${doubted.tool} ${doubted.command}) done?`, { kind: "choice", choices, hint: "Only you can find out. The new run is told." });
    fill(this.found, this.doubt.node);
  }

  async submit(event) {
    event.preventDefault();
    this.send.disabled = true;
    fill(this.word);
    try {
      const { run_id } = await call("v1/wake", { body: this.order() });
      say("The run is accepted.");
      go(["runs", run_id]);
    } catch (error) {
      fill(this.word, error.message);
    }
    this.send.disabled = false;
  }

  /** The request. Throws an Error that says what has to change. */
  order() {
    const goal = this.goal.value();
    if (!goal) throw new Error("A run needs a goal.");
    if (new TextEncoder().encode(goal).length > LONGEST_GOAL) throw new Error("The goal is too long: put what it should know into the context.");
    const constraints = limitsOf(Object.fromEntries(this.limits.map((one) => [one.name, one.value()])));
    return { wake_id: this.wakeId, goal, context: { ...contextOf(this.context.value()), ...this.whatWasFound() }, constraints };
  }

  whatWasFound() {
    if (!this.doubt) return {};
    if (!this.doubt.value()) throw new Error("Say what you found out about the step that is in doubt.");
    return { [this.doubt.name]: this.doubt.value() };
  }
}

function contextOf(given) {
  if (!given) return {};
  if (!given.startsWith("{")) return { background: given };
  try {
    return JSON.parse(given);
  } catch (error) {
    throw new Error(`The context looks like a JSON object, but it is not: ${error.message}`);
  }
}
