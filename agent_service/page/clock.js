/** Times that update themselves, such as "3 min ago" and running durations. One timer updates all of them. */

import { h } from "./dom.js";
import { ago, duration, instant } from "./words.js";

const EVERY_MS = 1000;
let ahead = 0;

/** Measures the offset between this machine's clock and the agent's by the header Date, to about a second. */
export function learn(date) {
  const theirs = Date.parse(date ?? "");
  if (!theirs) return;
  const found = Date.now() - theirs - 500;
  ahead = Math.abs(found) > 2000 ? found : 0;
}

/** The current time by the agent's clock. */
export const now = () => Date.now() - ahead;

/** Shows the time since `at`. */
export function since(at) {
  return at ? ticking("time", { datetime: at, title: instant(at), "data-ago": at }) : null;
}

/** Shows the duration from `start` to `end`, or until now. */
export function took(start, end) {
  if (!start) return null;
  if (end) return h("span.number", null, duration(Date.parse(end) - Date.parse(start)));
  return ticking("span.number", { "data-from": start });
}

/** Shows the time until `at`. */
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
