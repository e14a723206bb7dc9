/** Times that go on by themselves: "3 min ago" and the duration of what is under way. One timer moves all of them. */

import { h } from "./dom.js";
import { ago, duration, instant } from "./words.js";

const EVERY_MS = 1000;
let ahead = 0;

/** Learn how far this machine's clock is ahead of the agent's, from the Date of an answer, to about a second. */
export function learn(date) {
  const theirs = Date.parse(date ?? "");
  if (!theirs) return;
  const found = Date.now() - theirs - 500;
  ahead = Math.abs(found) > 2000 ? found : 0;
}

/** Now, by the agent's clock. */
export const now = () => Date.now() - ahead;

/** How long ago `at` is. */
export function since(at) {
  return at ? ticking("time", { datetime: at, title: instant(at), "data-ago": at }) : null;
}

/** How long it took from `start` to `end`, or takes until now. */
export function took(start, end) {
  if (!start) return null;
  if (end) return h("span.number", null, duration(Date.parse(end) - Date.parse(start)));
  return ticking("span.number", { "data-from": start });
}

/** How long it is until `at`; empty when that is past. */
export function until(at) {
  return at ? ticking("time", { datetime: at, title: instant(at), "data-until": at }) : null;
}

function ticking(name, attributes) {
  return tick(h(name, attributes));
}

function tick(element) {
  const { ago: then, from, until: end } = element.dataset;
  const left = Date.parse(end) - now();
  const text = then ? ago(now() - Date.parse(then)) : from ? duration(Math.max(0, now() - Date.parse(from))) : left > 0 ? `in ${duration(left)}` : "now";
  if (element.textContent !== text) element.textContent = text;
  return element;
}

setInterval(() => {
  if (!document.hidden) document.querySelectorAll("[data-ago], [data-from], [data-until]").forEach(tick);
}, EVERY_MS);
