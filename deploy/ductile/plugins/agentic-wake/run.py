#!/usr/bin/env python3
"""Wakes the agent service (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer.

The job succeeds when the agent has accepted the order, which says nothing of how its run ends. Ductile runs a job again
after an error, a timeout or a restart: the order therefore carries a wake_id that is the same each time, and nothing
that is not. No proxies, no redirects; the token is never told, not even when the agent repeats it.
"""

import http.client
import json
import re
import signal
import ssl
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from order import ID, Failure, body_of, one_line, order_of, traceparent_of

WAKE_PATH, RUNS_PATH = "/v1/wake", "/v1/runs/"
MAX_ANSWER_BYTES = 64 * 1024
DEFAULT_SECONDS, LONGEST_SECONDS = 10.0, 600.0
SHARE_OF_TIME = 0.8  # of what is left until the deadline: the rest is for starting, and for the answer
DEFAULT_SECRET = "agentic-wake-token"  # noqa: S105 - the name of a secret, not the secret
RETRY_STATUSES = (408, 425, 429)
ADVICE = {
    401: "The agent does not know this token: compare `token` with the agent's http.tokens",
    403: "The agent's token needs the scope `wake`",
    404: "There is no wake API at `url`: it is the address of the agent, such as http://127.0.0.1:8700",
    409: "This wake_id stands for another order: give each order a wake_id of its own, or none",
    413: "Shorten the context",
    421: "Add the host of `url` to the agent's http.allowed_hosts",
    422: "Change the order",
}


@dataclass(frozen=True)
class Agent:
    """Where the agent is, and the token for it, "" for none. `path`: what comes before the paths of its API."""

    scheme: str
    host: str
    port: int | None
    path: str
    token: str = field(repr=False)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port is not None else "") + self.path


@dataclass(frozen=True)
class Answer:
    """What the agent answered. `content`: the JSON object in its body, empty when there is none."""

    status: int
    retry_after: str
    content: dict[str, Any]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request. Raises Failure, OSError or HTTPException."""
    agent = agent_of(request)
    if request["command"] == "health":
        return {"status": "ok", "result": f"agentic-wake can be run; it wakes the agent at {agent.url}"}
    order = order_of(request)
    seconds = _seconds(request)
    # An alarm rather than a socket timeout, which a server that sends a byte now and then would never reach.
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        answered = _post(agent, body_of(order), traceparent=traceparent_of(request))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _accepted(answered, agent, order["wake_id"])


def agent_of(request: dict[str, Any]) -> Agent:
    """The agent that the settings name. Raises Failure when it must not be asked."""
    config = request.get("config") or {}
    url = config.get("url")
    try:
        parts = urlsplit(url if isinstance(url, str) and re.fullmatch("[!-~]+", url) else "")
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:
        raise Failure("misconfigured", "url is not a valid address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise Failure("misconfigured", "url must be the address of the agent, starting with http:// or https://")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise Failure("misconfigured", "url must not contain a user name, a password, a query or a fragment")
    token = _token(request, config)
    if token and parts.scheme == "http" and not _is_loopback(host) and config.get("allow_http") not in (True, "true"):
        told = f"the token would go to {host} without TLS: use https, or set allow_http if the way there is private"
        raise Failure("misconfigured", told)
    return Agent(parts.scheme, host, port, parts.path.rstrip("/").removesuffix(WAKE_PATH), token)


def _token(request: dict[str, Any], config: dict[str, Any]) -> str:
    token = config.get("token")
    if token is None:
        token = (request.get("secrets") or {}).get(str(config.get("secret", DEFAULT_SECRET)))
    if token is None and "secret" in config:
        raise Failure("misconfigured", "Ductile has not handed over the configured secret: grant it to this plugin")
    token = "" if token is None else token
    if not isinstance(token, str) or not re.fullmatch("[!-~]{0,512}", token.strip()):
        raise Failure("misconfigured", "the token must be text of at most 512 printable ASCII characters")
    return token.strip()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _seconds(request: dict[str, Any]) -> float:
    """How long the request may take: the configured time, and clearly less than there is until the deadline."""
    configured = (request.get("config") or {}).get("timeout_seconds", DEFAULT_SECONDS)
    if not isinstance(configured, int | float) or not 0 < configured <= LONGEST_SECONDS:
        raise Failure("misconfigured", f"timeout_seconds must be a number up to {LONGEST_SECONDS:g}")
    left = (datetime.fromisoformat(request["deadline_at"]) - datetime.now(UTC)).total_seconds()
    return max(0.1, min(SHARE_OF_TIME * left, float(configured)))


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def _post(agent: Agent, body: bytes, *, traceparent: str) -> Answer:
    connection = (
        http.client.HTTPSConnection(agent.host, agent.port, context=ssl.create_default_context())
        if agent.scheme == "https"
        else http.client.HTTPConnection(agent.host, agent.port)
    )
    headers = {"Content-Type": "application/json", "User-Agent": "agentic-wake/0.1"}
    if agent.token:
        headers["Authorization"] = f"Bearer {agent.token}"
    if traceparent:
        headers["traceparent"] = traceparent
    try:
        connection.request("POST", agent.path + WAKE_PATH, body, headers)
        response = connection.getresponse()
        content = response.read(MAX_ANSWER_BYTES + 1)
        return Answer(response.status, response.headers.get("Retry-After", ""), _object(content))
    finally:
        connection.close()


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content) if len(content) <= MAX_ANSWER_BYTES else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _accepted(answered: Answer, agent: Agent, wake_id: str) -> dict[str, Any]:
    """The response for an accepted order. Raises Failure for any other answer."""
    if not 200 <= answered.status < 300:
        raise _refusal(answered, agent)
    run_id = answered.content.get("run_id")
    if answered.content.get("accepted") is not True or not isinstance(run_id, str) or not ID.fullmatch(run_id):
        told = f"{agent.url} answered {answered.status} without accepting the order: is it the address of the agent?"
        raise Failure("transient", told, retry=True)
    if agent.token and agent.token in run_id:
        raise Failure("tool_error", "the agent's answer repeats the token: it is not kept")
    woken = {"run_id": run_id, "wake_id": wake_id, "status_url": f"{agent.url}{RUNS_PATH}{run_id}"}
    event = {"type": "agent.wake.accepted", "payload": woken, "dedupe_key": f"agentic:run:{run_id}:accepted"}
    return {
        "status": "ok",
        "result": f"The agent accepted the order as run {run_id}, which is not completed yet: {woken['status_url']}",
        "output": woken,
        "state_updates": {"last_run_id": run_id},
        "events": [event],
    }


def _refusal(answered: Answer, agent: Agent) -> Failure:
    status = answered.status
    told = f"the agent answered {status} {http.client.responses.get(status, '')}".strip()
    if 300 <= status < 400:
        return Failure("misconfigured", f"{told}: redirects are not followed, give the final address as `url`")
    error = answered.content.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        told += f": {_said(error, agent.token)}"
    if status >= 500 or status in RETRY_STATUSES:
        patience = re.fullmatch("[0-9]{1,6}", answered.retry_after)
        asked = f" It asks for {patience[0]} s of patience." if patience else ""
        return Failure("transient", f"{told}. Nothing is known to be accepted.{asked}", retry=True)
    return Failure("refused", f"{told}. {ADVICE.get(status, 'Asking again would not help')}.")


def _said(error: dict[str, Any], token: str) -> str:
    """The agent's own words, in one line without the token, with the run that is in the way."""
    words, run_id = error["message"], error.get("run_id")
    if isinstance(run_id, str) and ID.fullmatch(run_id):
        words += f" (run {run_id})"
    return one_line(words.replace(token, "[token]") if token else words)


def _read() -> dict[str, Any]:
    try:
        request: dict[str, Any] = json.load(sys.stdin.buffer)
        whole = all(isinstance(request.get(name) or {}, dict) for name in ("config", "event", "secrets"))
        named = isinstance(request["command"], str) and isinstance(request["job_id"], str)
        timed = datetime.fromisoformat(request["deadline_at"]).tzinfo is not None
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        whole = named = timed = False
    if not (whole and named and timed):
        raise Failure("invalid_arguments", "what came on stdin is not a request of plugin protocol 2")
    return request


def _failure(error: Failure | OSError | http.client.HTTPException) -> Failure:
    """What to tell of an error on the way."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, TimeoutError):
        told = "the agent did not answer in time; if it heard the order, the next attempt names the same run"
        return Failure("timeout", told, retry=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure("misconfigured", f"the agent's certificate is not valid: {error.verify_message}")
    if isinstance(error, http.client.HTTPException):
        return Failure("transient", f"what answered does not speak HTTP properly: {type(error).__name__}", retry=True)
    return Failure("transient", f"the agent could not be reached: {error.strerror or type(error).__name__}", retry=True)


def main() -> None:
    try:
        response = answer(_read())
    except (Failure, OSError, http.client.HTTPException) as error:
        failure = _failure(error)
        response = {
            "status": "error",
            "error": str(failure),
            "retry": failure.retry,
            "error_class": failure.error_class,
        }
    json.dump(response, sys.stdout)


if __name__ == "__main__":
    main()
