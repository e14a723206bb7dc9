"""Client of the agent's API for plugins: their settings, one HTTP request, and the meaning of a refusal.

The plugins agentic-wake and agentic-run use it. Standard library only. No proxies, no redirects; the token is never
repeated, even if the agent repeats it.
"""

import json
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - Ductile takes the first python3 of its own PATH, however old
    message = "the python3 that Ductile finds on its PATH is too old: put one of 3.11 or newer first there"
    json.dump({"status": "error", "error": message, "retry": False, "error_class": "configuration"}, sys.stdout)
    sys.exit()

import http.client
import re
import signal
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

API = "/v1/"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
DEFAULT_SECONDS, LONGEST_SECONDS = 10.0, 600.0
SHARE_OF_TIME = 0.8  # of what is left until the deadline: the rest is for starting, and for the answer
LONGEST_MESSAGE = 300
RETRY_STATUSES = (408, 425, 429)
ADVICE = {
    401: "The agent does not know this token: compare `token` with the agent's http.tokens",
    413: "Send less",
    421: "Add the host of `url` to the agent's http.allowed_hosts",
}
ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Failure(Exception):
    """The request may not have taken effect. `retry`: a later attempt may succeed."""

    def __init__(self, error_class: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry = retry


@dataclass(frozen=True)
class Agent:
    """Address of the agent, and its token, "" for none. `path`: prefix of the paths of its API."""

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
    """The agent's HTTP response. `content`: the JSON object in its body, or an empty one."""

    status: int
    retry_after: str
    content: dict[str, Any]


def agent_of(request: dict[str, Any], *, secret: str) -> Agent:
    """Returns the configured agent. `secret`: the default name of the token in Ductile's vault. Raises Failure."""
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
    token = _token(request, config, secret)
    if token and parts.scheme == "http" and not _is_loopback(host) and config.get("allow_http") not in (True, "true"):
        message = f"the token would go to {host} without TLS: use https, or set allow_http if the way there is private"
        raise Failure("misconfigured", message)
    return Agent(parts.scheme, host, port, parts.path.rstrip("/").removesuffix("/v1/wake"), token)


def _token(request: dict[str, Any], config: dict[str, Any], secret: str) -> str:
    token = config.get("token")
    if token is None and "token_file" in config:
        token = _read_token(str(config["token_file"]))
    if token is None:
        token = (request.get("secrets") or {}).get(str(config.get("secret", secret)))
    if token is None and "secret" in config:
        raise Failure("misconfigured", "Ductile has not handed over the configured secret: grant it to this plugin")
    token = "" if token is None else token
    if not isinstance(token, str) or not re.fullmatch("[!-~]{0,512}", token.strip()):
        raise Failure("misconfigured", "the token must be text of at most 512 printable ASCII characters")
    return token.strip()


def _read_token(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii")
    except (OSError, ValueError):
        raise Failure("misconfigured", f"token_file {one_line(file)} cannot be read as text") from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def ask(
    request: dict[str, Any],
    agent: Agent,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Sends one request, POST if there is a body, and returns the answer before the deadline.

    Raises Failure, OSError or HTTPException.
    """
    seconds = _seconds(request)
    # An alarm rather than a socket timeout, which a server that sends a byte now and then would never reach.
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return _send(agent, path, body, dict(headers or {}))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _seconds(request: dict[str, Any]) -> float:
    """Returns the timeout: the configured one, but clearly less than the time until the deadline."""
    configured = (request.get("config") or {}).get("timeout_seconds", DEFAULT_SECONDS)
    if not isinstance(configured, int | float) or not 0 < configured <= LONGEST_SECONDS:
        raise Failure("misconfigured", f"timeout_seconds must be a number up to {LONGEST_SECONDS:g}")
    left = (datetime.fromisoformat(request["deadline_at"]) - datetime.now(UTC)).total_seconds()
    return max(0.1, min(SHARE_OF_TIME * left, float(configured)))


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def _send(agent: Agent, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
    connection = (
        http.client.HTTPSConnection(agent.host, agent.port, context=ssl.create_default_context())
        if agent.scheme == "https"
        else http.client.HTTPConnection(agent.host, agent.port)
    )
    headers["User-Agent"] = "agentic-ductile/0.1"
    if body is not None:
        headers["Content-Type"] = "application/json"
    if agent.token:
        headers["Authorization"] = f"Bearer {agent.token}"
    try:
        connection.request("GET" if body is None else "POST", agent.path + path, body, headers)
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


def refusal(answer: Answer, agent: Agent, advice: Mapping[int, str]) -> Failure:
    """Returns the failure that the answer means. `advice`: remedies by status, before the general ones."""
    status = answer.status
    message = f"the agent answered {status} {http.client.responses.get(status, '')}".strip()
    if 300 <= status < 400:
        return Failure("misconfigured", f"{message}: redirects are not followed, give the final address as `url`")
    error = answer.content.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        message += f": {_error_text(error, agent.token)}"
    if status >= 500 or status in RETRY_STATUSES:
        patience = re.fullmatch("[0-9]{1,6}", answer.retry_after)
        wait = f" It asks for {patience[0]} s of patience." if patience else ""
        return Failure("transient", f"{message}. Nothing is known to be accepted.{wait}", retry=True)
    return Failure("refused", f"{message}. {(ADVICE | dict(advice)).get(status, 'Asking again would not help')}.")


def _error_text(error: dict[str, Any], token: str) -> str:
    """Returns the agent's error in one line without the token, with the run that causes it."""
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
    if isinstance(error, Failure):
        return error
    if isinstance(error, TimeoutError):
        message = "the agent did not answer in time; if it heard this, the next attempt is the same to it"
        return Failure("timeout", message, retry=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure("misconfigured", f"the agent's certificate is not valid: {error.verify_message}")
    if isinstance(error, http.client.HTTPException):
        return Failure("transient", f"what answered does not speak HTTP properly: {type(error).__name__}", retry=True)
    return Failure("transient", f"the agent could not be reached: {error.strerror or type(error).__name__}", retry=True)


def main(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers the request on stdin with `answer`, which may raise Failure, OSError or HTTPException."""
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


def one_line(text: str) -> str:
    """Returns `text` printable, in one line, and cut where it is long."""
    shown = " ".join(INVISIBLE.sub(" ", text).split())
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[:LONGEST_MESSAGE]}…"
