/** Runs and dead letters that wait for a person, each with reason, consequence and actions. */

import { buttons } from "../actions.js";
import { call } from "../api.js";
import { since } from "../clock.js";
import { fill, h, list } from "../dom.js";
import { icon } from "../icons.js";
import { hashOf } from "../routes.js";
import { follow } from "../stream.js";
import { plural } from "../words.js";
import { asked, replies } from "./asks.js";
import { remedy } from "./run_head.js";

const SAYS_ALL = new Set(["approval", "question"]);
const ANSWERS = new Set(["approve", "reject", "answer"]);
const SOON_MS = 1000;
const KINDS = { approval: ["person", "Approval"], question: ["person", "Question"], in_doubt: ["doubt", "In doubt"], escalated: ["escalated", "Escalated"], paused: ["paused", "Paused"], dead_letter: ["letter", "Dead letter"] };

export class InboxView {
  constructor(page) {
    this.page = page;
    this.word = h("div");
    this.count = h("p.quiet", { "aria-live": "polite" });
    this.lines = h("ol.cards", { "aria-label": "What waits for a person" });
    this.heading = h("summary");
    this.dead = h("ol.cards", { "aria-label": "Dead letters" });
    this.letters = h("details.letters", { hidden: true }, this.heading, this.dead);
    this.node = h("div.inbox", null, h("header.view-head", null, h("h1", { tabindex: -1 }, "Inbox"), this.count), this.lines, this.letters, this.word);
  }

  async show() {
    this.stream ??= follow("v1/events", { resume: false, opened: () => this.load(), told: () => this.soon(), state: (state) => this.page.live(state) });
    await this.load();
  }

  async load() {
    const found = await this.page.tried(this.word, () => call("v1/inbox"));
    if (!found) return;
    this.page.needsPerson(found.total);
    fill(this.count, found.total ? `${plural(found.total, "thing waits", "things wait")} for a person. ` : "", found.trouble && h("span.warns", null, icon("escalated"), found.trouble));
    list(this.lines, found.items.filter((item) => !item.seq), (item) => item.id, (item) => this.card(item));
    this.showLetters(found.items.filter((item) => item.seq));
    fill(this.word, found.items.length ? more(found) : h("div.empty", null, icon("done"), h("p", null, "Nothing waits for a person.")));
  }

  /** Dead letters, folded: no answer is urgent, and there may be many. */
  showLetters(items) {
    this.letters.hidden = !items.length;
    fill(this.heading, icon("letter"), ` ${plural(items.length, "message", "messages")} that could not be handled`);
    list(this.dead, items, (item) => item.id, (item) => this.card(item));
  }

  card(item) {
    const [drawing, kind] = KINDS[item.kind] ?? ["escalated", item.kind];
    const title = item.run_id ? h("a", { href: hashOf(["runs", item.run_id]), "data-line": true }, item.title) : h("span", null, item.title);
    return h("li.card", { class: `card is-${item.kind}` },
      h("p.card-kind", null, h("span.mark", { class: `mark is-${item.kind}` }, icon(drawing), kind), item.class && item.class !== item.kind ? h("code", null, item.class) : null, h("span.quiet", null, since(item.since))),
      h("h2", null, title),
      asked(item.asks, item.text),
      item.remedy && !SAYS_ALL.has(item.kind) && !item.actions.includes("answer") && remedy(item.remedy),
      h("div.buttons", null, this.answers(item), item.seq ? this.letter(item) : null));
  }

  /** The actions; a pending request brings its own. */
  answers(item) {
    const done = () => this.load();
    if (!item.asks || !item.actions.some((name) => ANSWERS.has(name))) return buttons(this.page, item.actions, item, { done, loud: true });
    const others = item.actions.filter((name) => !ANSWERS.has(name));
    return [...replies(this.page, item, done), ...buttons(this.page, others, item, { done })];
  }

  /** The content of a dead letter, on demand. */
  letter(item) {
    const body = h("pre", { hidden: true, tabindex: 0 });
    const show = async (event) => {
      event.target.remove();
      body.hidden = false;
      const found = await call("v1/dead-letters", { query: { id: item.seq } }).catch((error) => ({ letters: [{ body: error.message }] }));
      fill(body, found.letters[0]?.body ?? "It is gone.");
    };
    return [h("button.plain", { type: "button", on: { click: show } }, "Show the message"), body];
  }

  soon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.load();
    }, SOON_MS);
  }

  close() {
    this.stream?.close();
    clearTimeout(this.timer);
  }
}

function more(found) {
  const left = found.total - found.items.length;
  return left > 0 ? h("p.quiet", null, `${left} more come up as these are settled.`) : null;
}
