/** Sums over runs: by day, and by failure, model and tool for one day or all days. */

import { call } from "../api.js";
import { fill, h } from "../dom.js";
import { hashOf } from "../routes.js";
import { STATES, capital, tokens, usd } from "../words.js";

const NOTHING = { runs: 0, unpriced: 0, cost_usd: 0, tokens: 0 };
const KINDS = [["failure", "Failures"], ["model", "Models"], ["tool", "Tools"]];

export class UsageView {
  constructor(page) {
    this.page = page;
    this.word = h("div.stack");
    this.node = h("div.usage-view", null, h("header.view-head", null, h("h1", { tabindex: -1 }, "Usage")), this.word);
  }

  async show({ query }) {
    const found = await this.page.tried(this.word, () => call("v1/usage"));
    if (!found) return;
    const used = found.days.filter(({ sums }) => sums.length);
    if (!used.length) return fill(this.word, h("div.empty", null, h("p", null, `No run in the last ${found.days.length} days.`)));
    const chosen = used.filter(({ day }) => day === query.get("day"));
    const of = added((chosen.length ? chosen : used).flatMap(({ sums }) => sums));
    fill(this.word, days(used, query.get("day")), h("h2", null, chosen.length ? `On ${query.get("day")}` : `In the last ${found.days.length} days`),
      KINDS.map(([kind, title]) => table([title, "Runs", "Tokens", "Cost"], of.filter((sum) => sum.kind === kind).map((sum) => [sum.name, sum.runs, tokens(sum.tokens), cost(sum)]))),
      h("p.quiet", null, "Days are UTC, by acceptance. A run that asked several models or tools counts for each; a child's cost is in that of its parent."));
  }
}

function days(all, chosen) {
  const shown = all.map(({ day, sums }) => ({ day, of: Object.fromEntries(sums.filter((sum) => sum.kind === "status").map((sum) => [sum.name, sum])) }));
  const states = STATES.filter((state) => shown.some(({ of }) => of[state]));
  const rows = shown.map(({ day, of }) => {
    const [sum = NOTHING] = added(Object.values(of).map((one) => ({ ...one, name: day })));
    const link = h("a", { href: hashOf(["usage"], day === chosen ? {} : { day }), "data-line": true, "aria-current": day === chosen ? "true" : null }, day);
    return [link, sum.runs, tokens(sum.tokens), cost(sum), ...states.map((state) => of[state]?.runs ?? "")];
  });
  return table(["Day", "Runs", "Tokens", "Cost", ...states.map(capital)], rows);
}

/** Adds up the sums of each kind and name, the most frequent first. */
function added(sums) {
  const found = new Map();
  for (const sum of sums) {
    const before = found.get(`${sum.kind} ${sum.name}`) ?? { ...sum, ...NOTHING };
    for (const name in NOTHING) before[name] += sum[name];
    found.set(`${sum.kind} ${sum.name}`, before);
  }
  return [...found.values()].sort((one, other) => other.runs - one.runs);
}

/** The cost is a lower bound if prices are unknown. */
const cost = (sum) => `${sum.unpriced ? "more than " : ""}${usd(sum.cost_usd)}`;

function table(head, rows) {
  if (!rows.length) return null;
  return h("div.scrolls", { tabindex: 0, role: "region", "aria-label": head[0] }, h("table.sums", null, h("thead", null, h("tr", null, head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map(([name, ...cells]) => h("tr", null, h("th", { scope: "row" }, name), cells.map((cell) => h("td", null, cell)))))));
}
