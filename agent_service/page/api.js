/**
 * The agent's calls. The token is held in memory, or in the session of this tab if its owner says so; it is sent as a
 * header, to this place only. A person is asked for it once, however many calls wait for it.
 */

import { learn } from "./clock.js";

const KEPT = "agentic.token";
let token = sessionStorage.getItem(KEPT) ?? "";
let asked = null;
let ask = async () => null;

/** An answer that is none: `status` 0 without an answer. Its message is for people. */
export class Refused extends Error {
  constructor(status, message, code = "", field = "") {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

/** Who asks a person for a token: given why, it returns {token, keep}, or null when the person gave none. */
export function askWith(how) {
  ask = how;
}

export const hasToken = () => token !== "";

export function forgetToken() {
  token = "";
  sessionStorage.removeItem(KEPT);
}

/** An id for what is sent twice at most and counts once. Not randomUUID: browsers have that for https only. */
export function freshId() {
  return `page-${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** The answer's JSON. `query` may have lists; a `body` is sent by POST. Raises Refused. */
export async function call(path, how) {
  const answer = await open(path, how);
  return answer.status === 204 ? null : answer.json();
}

/** The bytes of an answer. Raises Refused. */
export async function bytes(path, { signal } = {}) {
  return new Uint8Array(await (await open(path, { signal })).arrayBuffer());
}

/** A question of the page itself, which asks no person for a token. Null where it was refused. */
export const glance = (path, query) => call(path, { query, silent: true }).catch(() => null);

/** The answer itself, once it is a good one. Raises Refused, and AbortError when `signal` says so. */
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

/** Below where the page was loaded from, so that it works behind a proxy that puts it elsewhere. */
function address(path, query = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, one);
  }
  return url;
}
