/**
 * Client of the agent's API. The token stays in memory, or in the tab's session if the person chooses so, and goes to this
 * origin only, as a header. The person is asked once, however many calls wait for the token.
 */

import { learn } from "./clock.js";

const KEPT = "agentic.token";
let token = sessionStorage.getItem(KEPT) ?? "";
let asked = null;
let ask = async () => null;

/** A failed call: `status` is 0 without an answer. Its message is for people. */
export class Refused extends Error {
  constructor(status, message, code = "", field = "") {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

/** Sets the function that asks for a token: it gets the reason and returns {token, keep}, or null. */
export function askWith(how) {
  ask = how;
}

export const hasToken = () => token !== "";

export function forgetToken() {
  token = "";
  sessionStorage.removeItem(KEPT);
}

/** An idempotency id. Not randomUUID, which browsers offer over https only. */
export function freshId() {
  return `page-${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Returns the answer's JSON. `query` may contain lists; a `body` makes it a POST. Throws Refused. */
export async function call(path, how) {
  const answer = await open(path, how);
  return answer.status === 204 ? null : answer.json();
}

/** Returns the answer's bytes. Throws Refused. */
export async function bytes(path, { signal } = {}) {
  return new Uint8Array(await (await open(path, { signal })).arrayBuffer());
}

/** A call of the page itself, which never asks for a token. Returns null after an error. */
export const glance = (path, query) => call(path, { query, silent: true }).catch(() => null);

/** Returns a successful answer. Throws Refused, and AbortError if `signal` aborts. */
export async function open(path, { query, body, headers, signal, silent = false } = {}) {
  const sent = token;
  const answer = await request(address(path, query), body, headers, signal);
  if (answer.ok) return answer;
  const refused = await refusal(answer);
  if (answer.status !== 401 || silent) throw refused;
  if (sent === token && !(await newToken(sent ? "The agent does not know this token." : ""))) throw refused;
  return open(path, { query, body, headers, signal });
}

async function request(url, body, headers, signal) {
  const sent = { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { "Content-Type": "application/json" }), ...headers };
  try {
    const answer = await fetch(url, { method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers: sent, signal, redirect: "error", credentials: "omit", cache: "no-store" });
    learn(answer.headers.get("date"));
    return answer;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The agent does not answer. Is it running, and can this browser reach it?");
  }
}

async function refusal(answer) {
  const said = await answer.json().then((told) => told.error ?? told, () => ({}));
  const message = said.message ?? said.detail ?? `The agent answered ${answer.status}.`;
  return new Refused(answer.status, message, said.code, said.field);
}

function newToken(why) {
  asked ??= ask(why).then((given) => {
    asked = null;
    if (!given) return false;
    token = given.token;
    if (given.keep) sessionStorage.setItem(KEPT, token);
    else sessionStorage.removeItem(KEPT);
    return true;
  });
  return asked;
}

/** Resolves a path against the page's own address, so that a proxy may serve it under a prefix. */
function address(path, query = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, one);
  }
  return url;
}
