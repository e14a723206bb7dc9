"""What an answer of a Ductile says, and whether it is Ductile's own or a proxy's. Pure.

A refusal counts only where Ductile itself says it, with one JSON object `{"error": …}` in words of its own
(`internal/api`: auth.go, handlers.go; `internal/relay`: receiver.go). Anything else may have let the call pass before.
"""

import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import httpx2
from pydantic import JsonValue, SecretStr

from ductile_gateway.calls.artifacts import printable
from ductile_gateway.ductile.settings import DuctileSettings
from schemas import subjects
from schemas.values import dataclass

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
FORBIDDEN = "forbidden"
"""What the relay ingress says, as many others do, of a signature that is not its peer's."""
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
    """Nothing has left this machine: the same again later is safe."""


class DuctileRefused(Exception):
    """Ductile itself refuses: nothing has started. Of a question it may be a stranger, unless the words are Ductile's
    `own`."""

    def __init__(self, status: int, message: str, *, own: bool = True) -> None:
        super().__init__(f"Ductile answered {status}: {message}")
        self.status = status
        self.own = own


class Lost(Exception):
    """The request was sent, and no answer that could be read says what became of it."""


class Away(Exception):
    """A question has not been answered: ask again later. `refused`: Ductile is there, and does not say it to us."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class Unreadable(Exception):
    """The answer is empty or too large, as that of a job is whose result cannot be told: ask the log of jobs."""


def fields_of(body: bytes) -> dict[str, Any]:
    """The object in a body; empty where there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def own_refusal(body: bytes) -> str | None:
    """The words with which Ductile refuses a call or an event; None for an answer that may be anybody's."""
    found = fields_of(body)
    words = found.get("error")
    is_own = set(found) == _TOO_LARGE or (set(found) == {"error"} and str(words).startswith(_WORDS))
    return words if isinstance(words, str) and is_own else None


def job_id_in(fields: dict[str, Any]) -> str:
    job_id = fields.get("job_id")
    return job_id if isinstance(job_id, str) and JOB_ID.fullmatch(job_id) else ""


MOST_BYTES = 12 * 1024 * 1024
LONGEST_QUOTE = 300
CONNECT_WITHIN_S = 3.0
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_RESET_AT_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

Document = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`path` has braces for names. `scope`: the one to ask for, in both versions of Ductile; `opens`: what it opens."""

    method: Literal["GET", "POST"]
    path: str
    opens: str = ""
    scope: str = ""

    def of(self, *names: str) -> str:
        """Raises DuctileRefused for what is no legal name."""
        for name in names:
            if not (subjects.NAME.fullmatch(name) or (self.path.startswith("/job/") and JOB_ID.fullmatch(name))):
                raise DuctileRefused(0, f"{name[:80]!r} is not a legal name, so it was not asked for")
        return self.path.format(*names)


PLUGIN = Endpoint("GET", "/plugin/{}", "plugins", "plugin:ro (newer: plugin:catalog:ro)")
CALL = Endpoint("POST", "/plugin/{}/{}", "calls that read", "plugin:ro (newer: plugin:invoke:ro)")
PIPELINE = Endpoint("POST", "/pipeline/{}?async=true", "calls that write", "plugin:rw")
SKILLS = Endpoint("GET", "/skills")
HEALTH = Endpoint("GET", "/healthz")
EVENTS = Endpoint("GET", "/events", "events", "events:ro")
CONFIG = Endpoint("GET", "/config/view")
JOB = Endpoint("GET", "/job/{}", "jobs", "jobs:ro")
JOBS = Endpoint("GET", "/jobs")
TREE = Endpoint("GET", "/job/{}/tree", "trees of jobs, by which pipelines end", "jobs:ro or jobs:tree:ro")
LOGS = Endpoint("GET", "/job-logs", "the log of jobs, where lost calls are looked for", "jobs:ro or jobs:logs:ro")


class Bearer(httpx2.Auth):
    def __init__(self, token: SecretStr) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        yield request


@dataclass(eq=False)
class DuctileApi:
    _http: httpx2.AsyncClient
    _starts: httpx2.AsyncClient
    _url: str
    _timeout_s: float

    async def start(self, plugin: str, command: str | None, payload: Mapping[str, JsonValue]) -> str:
        """Start a command, or a pipeline without one; the id of its first job. Raises NotSent, DuctileRefused or
        Lost."""
        path = PIPELINE.of(plugin) if command is None else CALL.of(plugin, command)
        body = json.dumps({"payload": dict(payload)}, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"}
        try:
            async with asyncio.timeout(self._timeout_s):
                status, answer = await exchange(self._starts, "POST", path, content=body, headers=headers)
        except UNSENT as error:
            raise NotSent(f"nothing answers at {self._url} ({type(error).__name__})") from error
        except (httpx2.HTTPError, Unreadable, TimeoutError) as error:
            raise Lost(f"Ductile was asked, and its answer was lost ({type(error).__name__})") from error
        if (words := own_refusal(answer)) is not None:
            raise DuctileRefused(status, printable(words, LONGEST_QUOTE))
        job_id = job_id_in(fields_of(answer)) if status == httpx2.codes.ACCEPTED else ""
        if not job_id:
            raise Lost(f"the answer is not Ductile's: {status} {_quote(answer)}")
        return job_id

    async def job(self, job_id: str) -> Document | None:
        """The job; None when Ductile does not know it (any more). Raises Away or Unreadable."""
        try:
            return _object(await self._ask(JOB, job_id))
        except DuctileRefused as refusal:
            is_unknown = refusal.status == httpx2.codes.NOT_FOUND
            if is_unknown and refusal.own:
                return None
            raise Away(str(refusal), refused=not is_unknown) from refusal

    async def tree(self, job_id: str) -> list[Document]:
        """The job and all that followed from it; empty when Ductile does not know it. Raises Away or Unreadable."""
        return _objects(await self._look(TREE, job_id))

    async def log(self, job_id: str, *, results: bool) -> list[Document]:
        """What the log has of a finished job. Raises Away or, with `results`, Unreadable."""
        return await self._listed(LOGS, "logs", job_id=job_id, **({"include_result": "true"} if results else {}))

    async def logged_with(self, text: str, *, plugin: str, command: str) -> list[Document]:
        """Finished jobs of the command that have this text in their result or stderr, newest first. Raises Away."""
        return await self._listed(LOGS, "logs", plugin=plugin, command=command, query=text)

    async def jobs(self, *, plugin: str, command: str, most: int = 200) -> list[Document]:
        """The latest jobs of the command, newest first, finished or not. Raises Away or Unreadable."""
        return await self._listed(JOBS, "jobs", plugin=plugin, command=command, limit=str(most))

    async def plugin(self, name: str) -> Document | None:
        """What a plugin can do; None if there is no such plugin. Raises Away or DuctileRefused."""
        try:
            return _object(await self._ask(PLUGIN, name))
        except DuctileRefused as refusal:
            if refusal.status == httpx2.codes.NOT_FOUND:
                return None
            raise

    async def skills(self) -> Document:
        """All commands and pipelines. Raises Away or DuctileRefused."""
        return _object(await self._ask(SKILLS))

    async def health(self) -> Document:
        """Version and size of the queue. Raises Away unless a Ductile answers: a proxy does for one that is away."""
        try:
            found = _object(await self._ask(HEALTH))
        except (DuctileRefused, Unreadable) as error:
            raise Away(f"what answers at {self._url} is no Ductile: to /healthz it says: {error}") from error
        if not isinstance(found.get("queue_depth"), int):
            raise Away(f"what answers at {self._url} is no Ductile: its /healthz tells no queue_depth")
        return found

    async def status(self, endpoint: Endpoint, *names: str) -> int:
        """How it answers our token. Raises Away, or DuctileRefused for a token that it does not know."""
        content = b"{}" if endpoint.method == "POST" else None
        status, answer = await self._answered(endpoint.method, endpoint.of(*names), content=content)
        if status == httpx2.codes.UNAUTHORIZED:
            raise DuctileRefused(status, _quote(answer))
        later = (httpx2.codes.REQUEST_TIMEOUT, httpx2.codes.TOO_MANY_REQUESTS)
        if httpx2.codes.is_server_error(status) or httpx2.codes.is_redirect(status) or status in later:
            raise Away(f"what answers at {self._url} says {status}")
        return status

    @asynccontextmanager
    async def events(self, *, silent_s: float) -> AsyncIterator[httpx2.EventSource]:
        """The stream of events, that must say something every `silent_s`. Raises DuctileRefused or Away."""
        timeout = httpx2.Timeout(silent_s, connect=CONNECT_WITHIN_S)
        try:
            async with self._http.stream("GET", EVENTS.of(), timeout=timeout) as response:
                self._accept(response.status_code, b"")
                yield httpx2.EventSource(response)
        except (httpx2.HTTPError, httpx2.SSEError, httpx2.StreamError) as error:
            raise Away(f"the stream of events ended ({type(error).__name__})") from error

    async def _listed(self, endpoint: Endpoint, field: str, **params: str) -> list[Document]:
        return _objects(_object(await self._look(endpoint, params=params)).get(field))

    async def _look(self, endpoint: Endpoint, *names: str, params: Mapping[str, str] | None = None) -> JsonValue:
        try:
            return await self._ask(endpoint, *names, params=params)
        except DuctileRefused as refusal:
            raise Away(str(refusal), refused=True) from refusal

    async def _ask(self, endpoint: Endpoint, *names: str, params: Mapping[str, str] | None = None) -> JsonValue:
        status, body = await self._answered("GET", endpoint.of(*names), params=params)
        self._accept(status, body)
        if not body:
            raise Unreadable("Ductile answered nothing")
        try:
            found: JsonValue = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Away(f"what answers at {self._url} is no Ductile: no JSON") from error
        return found

    async def _answered(self, method: str, path: str, **sent: Any) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await exchange(self._http, method, path, **sent)
        except UNSENT as error:
            raise Away(f"nothing answers at {self._url} ({type(error).__name__})") from error
        except (httpx2.HTTPError, TimeoutError) as error:
            raise Away(f"the Ductile at {self._url} did not answer ({type(error).__name__})") from error

    def _accept(self, status: int, body: bytes) -> None:
        if httpx2.codes.is_client_error(status):
            raise DuctileRefused(status, _quote(body), own=own_refusal(body) is not None)
        if not httpx2.codes.is_success(status):
            raise Away(f"what answers at {self._url} says {status}")


async def exchange(http: httpx2.AsyncClient, method: str, path: str, **sent: Any) -> tuple[int, bytes]:
    """The status and body of one answer. Raises httpx2.HTTPError, and Unreadable for a body that is too large."""
    async with http.stream(method, path, **sent) as response:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                raise Unreadable(f"the answer is larger than {MOST_BYTES} bytes")
        return response.status_code, bytes(body)


@asynccontextmanager
async def open_api(
    settings: DuctileSettings, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[DuctileApi]:
    """The API at the address of the settings. `transport`: in place of the network."""
    is_tls = settings.url.startswith("https:")
    tls = ssl.create_default_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with AsyncExitStack() as opened:
        clients = []
        for idle, options in ((20, []), (0, [_RESET_AT_CLOSE])):
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=idle, keepalive_expiry=5.0)
            network = httpx2.AsyncHTTPTransport(verify=tls, limits=limits, trust_env=False, socket_options=options)
            client = httpx2.AsyncClient(
                base_url=settings.url,
                auth=Bearer(settings.token),
                timeout=httpx2.Timeout(settings.request_timeout_s, connect=CONNECT_WITHIN_S),
                transport=transport or network,
                trust_env=False,
            )
            clients.append(await opened.enter_async_context(client))
        yield DuctileApi(clients[0], clients[1], settings.url, settings.request_timeout_s)


def _quote(body: bytes) -> str:
    return printable(body[:LONGEST_QUOTE].decode(errors="replace").strip(), LONGEST_QUOTE) or "no reason given"


def _object(found: JsonValue) -> Document:
    if not isinstance(found, dict):
        raise Away("what answers there is no Ductile: no object")
    return found


def _objects(found: JsonValue) -> list[Document]:
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
