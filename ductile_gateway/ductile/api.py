"""HTTP API and relay ingress of a Ductile.

A refusal counts only in Ductile's own form and words: one JSON object `{"error": …}` (`internal/api`: auth.go,
handlers.go; `internal/relay`: receiver.go). Any other answer may be a proxy's, after the call has passed.

An event for the relay is `{"event": {"type", "payload", "dedupe_key"}, "origin": {"instance", "event_id"}, "baggage"}`.
Ductile answers a repeated one with the job that it started before, once that has succeeded.
"""

import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from functools import cache
from typing import Any

import httpx2
from pydantic import JsonValue

from ductile_gateway.calls.artifacts import printable
from ductile_gateway.ductile.jobs import objects
from ductile_gateway.ductile.settings import DuctileSettings, RelayPeerSettings
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, relay_headers
from groundwork.service.machine import utc_now
from groundwork.service.secret import masked
from schemas import subjects
from schemas.bounded import json_object
from schemas.values import dataclass

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
FORBIDDEN = "forbidden"
"""Error of the relay ingress for a wrong signature; proxies use it as well."""
_WORDS = (
    *("plugin not found", "command not supported by plugin", "pipeline not found", "job not found"),
    *("invalid JSON body", "payload must be a JSON object", "root baggage claims failed", "event.type"),
    *("missing or invalid Authorization header", "invalid Authorization header format", "invalid token"),
    *("insufficient scope", "synchronous pipeline trigger requires", "unknown relay peer", "peer identity mismatch"),
    *("missing relay ", "invalid relay ", "relay timestamp outside", "relay key id mismatch"),
    *("origin instance mismatch", "relay payload too large", "event type not allowed for peer"),
)
_TOO_LARGE = {"error", "bytes_actual", "bytes_limit"}


class NotSent(Exception):
    """Nothing was sent: a retry is safe."""


class Unavailable(Exception):
    """A question was not answered: ask again later."""


class DuctileRefused(Unavailable):
    """Nothing has started. Unless the words are Ductile's `own`, a proxy may have refused a question."""

    def __init__(self, status: int, message: str, *, own: bool = True) -> None:
        super().__init__(f"Ductile answered {status}: {message}")
        self.status = status
        self.own = own


class AnswerLost(Exception):
    """The request was sent, and its outcome is unknown."""


class UnreadableAnswer(Exception):
    """The answer is empty, too large or too deep. Ductile answers nothing for a job whose result is not JSON: ask the
    log of jobs."""


def own_refusal(body: bytes) -> str | None:
    """Error text of a refusal by Ductile itself; None for any other answer."""
    found = json_object(body) or {}
    words = found.get("error")
    is_own = set(found) == _TOO_LARGE or (set(found) == {"error"} and str(words).startswith(_WORDS))
    return words if isinstance(words, str) and is_own else None


def job_id_in(fields: dict[str, Any]) -> str:
    job_id = fields.get("job_id")
    return job_id if isinstance(job_id, str) and JOB_ID.fullmatch(job_id) else ""


MOST_BYTES = 12 * 1024 * 1024
LONGEST_QUOTE = 300
CONNECT_WITHIN_S = 3.0
UNKNOWN_NAME = "00000000-0000-4000-8000-000000000000"
"""Legal as the name of a plugin, command and pipeline, and as the id of a job."""
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_RESET_AT_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""A start that was given up is dropped by the kernel, and not sent later."""

Document = dict[str, JsonValue]
default_tls = cache(ssl.create_default_context)
"""Certificates are read once: that takes 50 ms. SSL_CERT_FILE may name others, which httpx2 by itself ignores."""


class Endpoint(Enum):
    """`path`: with braces for names. `opens`: text for findings. `scope`: needed scope, in both versions of Ductile."""

    PLUGIN = "GET", "/plugin/{}", "plugins", "plugin:ro (newer: plugin:catalog:ro)"
    CALL = "POST", "/plugin/{}/{}", "calls that read", "plugin:ro (newer: plugin:invoke:ro)"
    PIPELINE = "POST", "/pipeline/{}?async=true", "calls that write", "plugin:rw"
    SKILLS = "GET", "/skills"
    HEALTH = "GET", "/healthz"
    EVENTS = "GET", "/events", "events", "events:ro"
    CONFIG = "GET", "/config/view"
    JOB = "GET", "/job/{}", "jobs", "jobs:ro"
    JOBS = "GET", "/jobs"
    TREE = "GET", "/job/{}/tree", "trees of jobs, by which pipelines end", "jobs:ro or jobs:tree:ro"
    LOGS = "GET", "/job-logs", "the log of jobs, where lost calls are looked for", "jobs:ro or jobs:logs:ro"

    def __init__(self, method: str, path: str, opens: str = "", scope: str = "") -> None:
        self.method, self.path, self.opens, self.scope = method, path, opens, scope

    def path_of(self, *names: str) -> str:
        """Raises DuctileRefused for an illegal name."""
        for name in names:
            if not (subjects.NAME.fullmatch(name) or (self.path.startswith("/job/") and JOB_ID.fullmatch(name))):
                raise DuctileRefused(0, f"{name[:80]!r} is not a legal name, so it was not asked for")
        return self.path.format(*names)


@dataclass(eq=False)
class DuctileApi:
    """Questions raise Unavailable. For a single job or a list of jobs they may also raise UnreadableAnswer."""

    _http: httpx2.AsyncClient
    _starts: httpx2.AsyncClient
    settings: DuctileSettings

    async def start(self, path: str, payload: Mapping[str, JsonValue]) -> str:
        """Returns the id of the first job. `path`: of Endpoint.CALL or PIPELINE. Raises NotSent, DuctileRefused or
        AnswerLost."""
        body = json.dumps({"payload": dict(payload)}, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"}
        async with start_within(self.settings):
            status, answer = await exchange(self._starts, "POST", path, content=body, headers=headers)
        if (words := own_refusal(answer)) is not None:
            raise DuctileRefused(status, printable(masked(words, self.settings.secrets()), LONGEST_QUOTE))
        job_id = job_id_in(json_object(answer) or {}) if status == httpx2.codes.ACCEPTED else ""
        if not job_id:
            raise AnswerLost(f"the answer is not Ductile's: {status} {self._quote(answer)}")
        return job_id

    async def job(self, job_id: str) -> Document | None:
        return await self._known(Endpoint.JOB, job_id)

    async def tree(self, job_id: str) -> list[Document]:
        """The job and its successors; empty if Ductile does not know it."""
        return objects(await self._ask(Endpoint.TREE, job_id))

    async def log(self, job_id: str, *, results: bool) -> list[Document]:
        """Log entries of a finished job."""
        return await self._listed(
            Endpoint.LOGS, "logs", job_id=job_id, **({"include_result": "true"} if results else {})
        )

    async def logged_with(self, text: str, *, plugin: str, command: str) -> list[Document]:
        """Finished jobs of the command with this text in result or stderr, newest first."""
        return await self._listed(Endpoint.LOGS, "logs", plugin=plugin, command=command, query=text)

    async def jobs(self, *, plugin: str, command: str, most: int) -> list[Document]:
        """Latest jobs of the command, newest first."""
        return await self._listed(Endpoint.JOBS, "jobs", plugin=plugin, command=command, limit=str(most))

    async def plugin(self, name: str) -> Document | None:
        return await self._known(Endpoint.PLUGIN, name)

    async def skills(self) -> Document:
        return _object(await self._ask(Endpoint.SKILLS))

    async def health(self) -> dict[str, Any]:
        """With a number `queue_depth`. Raises Unavailable also if a proxy answers."""
        try:
            found = _object(await self._ask(Endpoint.HEALTH))
        except (DuctileRefused, UnreadableAnswer) as error:
            raise self._stranger(f"to /healthz it says: {error}") from error
        if not isinstance(found.get("queue_depth"), int):
            raise self._stranger("its /healthz tells no queue_depth")
        return found

    async def status(self, endpoint: Endpoint) -> int:
        """Status of a request for an unknown name; DuctileRefused is for an unknown token."""
        path = endpoint.path_of(*[UNKNOWN_NAME] * endpoint.path.count("{}"))
        content = b"{}" if endpoint.method == "POST" else None
        status, answer = await self._answered(endpoint.method, path, content=content)
        if status == httpx2.codes.UNAUTHORIZED:
            raise DuctileRefused(status, self._quote(answer))
        later = (httpx2.codes.REQUEST_TIMEOUT, httpx2.codes.TOO_MANY_REQUESTS)
        if httpx2.codes.is_server_error(status) or httpx2.codes.is_redirect(status) or status in later:
            raise Unavailable(f"what answers at {self.settings.url} says {status}")
        return status

    @asynccontextmanager
    async def events(self, *, silent_s: float) -> AsyncIterator[httpx2.EventSource]:
        """Ends after `silent_s` seconds of silence."""
        timeout = httpx2.Timeout(silent_s, connect=CONNECT_WITHIN_S)
        try:
            async with self._http.stream("GET", Endpoint.EVENTS.path_of(), timeout=timeout) as response:
                self._accept(response.status_code, b"")
                yield httpx2.EventSource(response)
        except (httpx2.HTTPError, httpx2.SSEError, httpx2.StreamError) as error:
            raise Unavailable(f"the stream of events ended ({type(error).__name__})") from error

    async def _known(self, endpoint: Endpoint, name: str) -> Document | None:
        """None if Ductile does not know it (any more)."""
        try:
            return _object(await self._ask(endpoint, name))
        except DuctileRefused as refusal:
            if refusal.status != httpx2.codes.NOT_FOUND:
                raise
            if refusal.own:
                return None
            raise Unavailable(str(refusal)) from refusal

    async def _listed(self, endpoint: Endpoint, field: str, **params: str) -> list[Document]:
        found = _object(await self._ask(endpoint, params=params))
        if not isinstance(found.get(field, ""), list | None):  # an empty list would say that nothing was started
            raise self._stranger(f"no {field}")
        return objects(found[field])

    async def _ask(self, endpoint: Endpoint, *names: str, params: Mapping[str, str] | None = None) -> JsonValue:
        status, body = await self._answered("GET", endpoint.path_of(*names), params=params)
        self._accept(status, body)
        if not body:
            raise UnreadableAnswer("Ductile answered nothing")
        try:
            found: JsonValue = json.loads(body)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise self._stranger("no JSON") from error
        except (ValueError, RecursionError) as error:  # a plugin may print numbers and nesting without end
            raise UnreadableAnswer("the answer has too long a number, or too deep a nesting") from error
        return found

    async def _answered(self, method: str, path: str, **sent: Any) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self.settings.request_timeout_s):
                return await exchange(self._http, method, path, **sent)
        except UNSENT as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"nothing answers at {self.settings.url} ({why})") from error
        except (httpx2.HTTPError, TimeoutError) as error:
            raise Unavailable(f"the Ductile at {self.settings.url} did not answer ({type(error).__name__})") from error

    def _stranger(self, why: str) -> Unavailable:
        return Unavailable(f"what answers at {self.settings.url} is no Ductile: {why}")

    def _accept(self, status: int, body: bytes) -> None:
        if httpx2.codes.is_client_error(status):
            raise DuctileRefused(status, self._quote(body), own=own_refusal(body) is not None)
        if not httpx2.codes.is_success(status):
            raise Unavailable(f"what answers at {self.settings.url} says {status}")

    def _quote(self, body: bytes) -> str:
        """A proxy may repeat what it was sent, with our token."""
        text = masked(body.decode(errors="replace"), self.settings.secrets())
        return printable(text.strip(), LONGEST_QUOTE) or "no reason given"


@asynccontextmanager
async def start_within(settings: DuctileSettings) -> AsyncIterator[None]:
    """Turns errors of a request that starts a call into NotSent or AnswerLost."""
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            yield
    except UNSENT as error:
        raise NotSent(f"nothing answers at {settings.url} ({str(error) or type(error).__name__})") from error
    except (httpx2.HTTPError, UnreadableAnswer, TimeoutError) as error:
        raise AnswerLost(f"Ductile was asked, and its answer was lost ({type(error).__name__})") from error


async def exchange(http: httpx2.AsyncClient, method: str, path: str, **sent: Any) -> tuple[int, bytes]:
    """Status and body of one answer. Raises httpx2.HTTPError, and UnreadableAnswer for a body that is too large."""
    async with http.stream(method, path, **sent) as response:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                raise UnreadableAnswer(f"the answer is larger than {MOST_BYTES} bytes")
        return response.status_code, bytes(body)


@asynccontextmanager
async def open_api(
    settings: DuctileSettings, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[DuctileApi]:
    """`transport` replaces the network."""
    is_tls = settings.url.startswith("https:")
    tls = default_tls() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with AsyncExitStack() as opened:
        clients = []
        for idle, options in ((20, []), (0, [_RESET_AT_CLOSE])):
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=idle, keepalive_expiry=5.0)
            network = httpx2.AsyncHTTPTransport(verify=tls, limits=limits, trust_env=False, socket_options=options)
            client = httpx2.AsyncClient(
                base_url=settings.url,
                headers={"Authorization": f"Bearer {settings.token.get_secret_value()}"},
                timeout=httpx2.Timeout(settings.request_timeout_s, connect=CONNECT_WITHIN_S),
                transport=transport or network,
                trust_env=False,
            )
            clients.append(await opened.enter_async_context(client))
        yield DuctileApi(clients[0], clients[1], settings)


def _object(found: JsonValue) -> Document:
    if not isinstance(found, dict):
        raise Unavailable("what answers there is no Ductile: no object")
    return found


@dataclass(eq=False)
class RelayIngress:
    _client: httpx2.AsyncClient
    us: RelayPeerSettings

    async def post(self, body: bytes) -> str:
        """Id of the first job; empty if no pipeline listens. Raises DuctileRefused: with 403 a person may mend a name
        or a secret; AnswerLost for an answer that may not be Ductile's; and httpx2.HTTPError and UnreadableAnswer."""
        try:
            return await self._post(body)
        except DuctileRefused as refusal:
            if "outside allowed clock skew" not in str(refusal):
                raise
            return await self._post(body)

    async def _post(self, body: bytes) -> str:
        path, headers = self.us.ingress_path, signed_headers(self.us, body)
        status, answer = await exchange(self._client, "POST", path, content=body, headers=headers)
        fields = json_object(answer) or {}
        job_id, error = job_id_in(fields), str(fields.get("error") or "")[:200]
        is_accepted = fields.get("status") == "accepted" and not fields.get("job_id")
        if status == httpx2.codes.ACCEPTED and (job_id or is_accepted):
            return job_id
        if status == httpx2.codes.FORBIDDEN and error == FORBIDDEN:
            why = "the peer's secret in Ductile is not the one that is set here, or something on the way says so"
            raise DuctileRefused(status, f"{error!a}: {why}")
        if own_refusal(answer) is not None:
            raise DuctileRefused(status, ascii(error))
        raise AnswerLost(f"Ductile was sent an event, and answered {status} without the id of a job")


def signed_headers(us: RelayPeerSettings, body: bytes) -> dict[str, str]:
    signed = relay_headers(us.ingress_path, body, us.secret.get_secret_value(), at=utc_now())
    return {"Content-Type": "application/json", PEER: us.peer, KEY_ID: us.key_id} | signed


@asynccontextmanager
async def open_relay_ingress(
    url: str, us: RelayPeerSettings, *, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[RelayIngress]:
    """`transport` replaces the network. Each event has its own connection: on one that Ductile closes meanwhile its
    outcome would be unknown."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=url, timeout=timeout_s, limits=limits, verify=default_tls(), transport=transport, trust_env=False
    ) as client:
        yield RelayIngress(client, us)
