/** Texts for states, times, tokens and money: short, consistent, and no more precise than the data. */

import { h } from "./dom.js";
import { icon } from "./icons.js";

export const STATES = ["queued", "running", "paused", "done", "escalated", "failed", "cancelled"];
export const FINAL = new Set(["done", "escalated", "failed", "cancelled"]);

const ITEM_ICONS = { ok: "done", open: "running", error: "failed", refused: "refused", waiting: "waiting", cancelled: "cancelled", continuation: "again" };
const ITEM_WORDS = {
  ok: "done", open: "under way", error: "failed", refused: "refused", waiting: "waiting", cancelled: "cancelled", continuation: "asks for more",
};
const WAITS = {
  model: "the model", model_retry: "the model's next try", tool: "a tool", tool_retry: "the tool's next try", time: "its time",
  approval: "an approval", question: "an answer", budget: "more budget", child: "another run",
};

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A state as icon and word. */
export function stateMark(state) {
  return h("span.mark", { class: `mark is-${state}` }, icon(state), capital(state));
}

/** The result of a timeline item as an icon, with a word for screen readers. */
export function itemMark(status) {
  return h("span.mark", { class: `mark is-${status}` }, icon(ITEM_ICONS[status] ?? status), h("span.unseen", null, ITEM_WORDS[status] ?? status));
}

export const statusWord = (status) => ITEM_WORDS[status] ?? status;

/** The text of a wait reason; "" for none. */
export function waitsFor(waiting) {
  if (!waiting) return "";
  return `waits for ${WAITS[waiting.kind] || waiting.kind}`;
}

/** Formats milliseconds: 340 ms, 2.4 s, 1 min 12 s, 2 h 05 min, 3 d 4 h. */
export function duration(ms) {
  const s = ms / 1000;
  if (!(ms >= 0)) return "";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const min = Math.round(s) / 60;
  if (min < 60) return `${Math.floor(min)} min ${pad(Math.round(s) % 60)} s`;
  const hours = Math.floor(s / 3600);
  return hours < 48 ? `${hours} h ${pad(Math.floor(s / 60) % 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Formats an age more coarsely: an old one has no seconds. */
export function ago(ms) {
  const s = Math.max(0, ms / 1000);
  if (s < 5) return "just now";
  if (s < 60) return `${Math.floor(s)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} days ago`;
}

export function tokens(count) {
  if (count === null || count === undefined) return "";
  if (count < 1000) return String(count);
  return count < 999_500 ? `${(count / 1000).toFixed(count < 9_950 ? 1 : 0)}k` : `${(count / 1e6).toFixed(1)}M`;
}

/** Formats US dollars; an unknown price is empty, never 0. */
export function usd(amount) {
  if (amount === null || amount === undefined) return "";
  if (amount === 0) return "$0";
  return `$${amount < 0.1 ? amount.toFixed(4) : amount.toFixed(2)}`;
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 999_500 ? `${(bytes / 1000).toFixed(bytes < 9_950 ? 1 : 0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Formats an instant in the reader's time zone, in full. */
export function instant(at) {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

const pad = (number) => String(number).padStart(2, "0");
