/**
 * Server-sent events over fetch, which can send a token. A cut stream reconnects with its last id, and waits longer after
 * each failure. A hidden tab closes its stream, because a browser has few connections for all tabs.
 */

import { open } from "./api.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const STEADY_MS = 5_000;
const LONGEST_EVENT = 16 * 1024 * 1024;
const GIVES_UP = new Set([401, 403, 404, 405, 410, 422]);

/**
 * Follows `path` until `close()` or the end of the stream. Calls `opened` at each connection, `told` with each {id, event,
 * data}, `state` with live, away or over. With `resume` it continues after the last id, else from now on.
 */
export function follow(path, { lastId = "", resume = true, opened = () => {}, told, state = () => {} }) {
  const stream = new Stream(path, { lastId, resume, opened, told, state });
  stream.run();
  return { close: () => stream.close() };
}

class Stream {
  constructor(path, how) {
    Object.assign(this, how, { path, closed: false, pause: FIRST_PAUSE_MS, aborted: new AbortController() });
    this.seen = () => document.hidden && this.aborted.abort();
    document.addEventListener("visibilitychange", this.seen);
  }

  close() {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.seen);
    this.aborted.abort();
    this.wake?.();
  }

  async run() {
    while (!this.closed) {
      const ended = await this.once().catch((error) => (GIVES_UP.has(error.status) ? "over" : "cut"));
      if (ended === "over" && !this.closed) {
        this.state("over");
        this.close();
      }
      if (!this.closed) await this.wait(ended);
    }
  }

  /** Reads one connection to its end. Returns `over` at the end of the stream, `closed` if the agent closed it. */
  async once() {
    const begun = performance.now();
    this.aborted = new AbortController();
    const headers = { Accept: "text/event-stream", ...(this.resume && this.lastId && { "Last-Event-ID": String(this.lastId) }) };
    const answer = await open(this.path, { headers, signal: this.aborted.signal });
    if (answer.status === 204) return "over";
    this.state("live");
    this.opened();
    try {
      await this.read(answer.body.getReader());
    } finally {
      if (performance.now() - begun > STEADY_MS) this.pause = FIRST_PAUSE_MS;
    }
    return "closed";
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + decoder.decode(value, { stream: true })).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      if (rest.length > LONGEST_EVENT) throw new RangeError("an event of this stream is too long");
      blocks.forEach((block) => this.hear(block));
    }
  }

  hear(block) {
    const fields = { event: "message", data: [], id: null };
    for (const line of block.split("\n")) {
      const [, name, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
      if (name === "data") fields.data.push(value ?? "");
      else if (name === "event" || name === "id") fields[name] = value ?? "";
    }
    if (fields.id !== null) this.lastId = fields.id;
    if (fields.data.length && !this.closed) this.told({ id: fields.id, event: fields.event, data: JSON.parse(fields.data.join("\n")) });
  }

  async wait(ended) {
    if (document.hidden) await this.until(document, "visibilitychange");
    else {
      if (ended === "cut") this.state("away");
      await this.until(null, null, this.pause * (0.5 + Math.random() / 2));
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    }
  }

  until(target, event, ms) {
    return new Promise((resolve) => {
      this.wake = resolve;
      target?.addEventListener(event, resolve, { once: true });
      if (ms) setTimeout(resolve, ms);
    });
  }
}
