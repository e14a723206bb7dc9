"""The HTTP API of a Ductile: start a job, look at jobs, ask what there is.

A body always has a length, because Ductile drops the payload of a chunked request. No redirects, no proxy of the
environment, answers of at most 12 MiB. Each start has a connection of its own, so that one which was closed meanwhile
cannot make a call doubtful; it is reset when closed, or the kernel would go on to send what was given up.
"""

import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from pydantic import JsonValue, SecretStr

from ductile_gateway.calls.excerpts import printable
from ductile_gateway.ductile.answers import Away, DuctileRefused, Lost, NotSent, Unreadable, is_health, own_refusal
from ductile_gateway.ductile.settings import DuctileSettings
from schemas import subjects


class Bearer(httpx2.Auth):
    def __init__(self, token: SecretStr) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        yield request


MOST_BYTES = 12 * 1024 * 1024
LONGEST_QUOTE = 300
QUEUE_WITHIN_S = 1.0
CONNECT_WITHIN_S = 3.0
_RESET_AT_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LATER = (httpx2.codes.REQUEST_TIMEOUT, httpx2.codes.TOO_MANY_REQUESTS)
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)

Document = dict[str, JsonValue]


class DuctileApi:
    def __init__(self, http: httpx2.AsyncClient, starts: httpx2.AsyncClient, *, url: str, timeout_s: float) -> None:
        self._url = url
        self._http = http
        self._starts = starts
        self._timeout_s = timeout_s

    async def start(self, plugin: str, command: str, payload: Mapping[str, JsonValue]) -> str:
        return await self._start(f"/plugin/{_name(plugin)}/{_name(command)}", payload)

    async def start_pipeline(self, pipeline: str, payload: Mapping[str, JsonValue]) -> str:
        """Start a pipeline without waiting for it; the id of its first job. Raises NotSent, DuctileRefused or Lost."""
        return await self._start(f"/pipeline/{_name(pipeline)}?async=true", payload)

    async def job(self, job_id: str) -> Document | None:
        """The job; None when Ductile does not know it (any more). Raises Away or Unreadable."""
        try:
            return _object(await self._get(f"/job/{_id(job_id)}"))
        except DuctileRefused as refusal:
            is_unknown = refusal.status == httpx2.codes.NOT_FOUND
            if is_unknown and refusal.own:
                return None
            raise Away(str(refusal), refused=not is_unknown) from refusal

    async def tree(self, job_id: str) -> list[Document]:
        """The job and all that followed from it; empty when Ductile does not know it. Raises Away or Unreadable."""
        return _objects(await self._look(f"/job/{_id(job_id)}/tree"))

    async def log(self, job_id: str, *, results: bool) -> list[Document]:
        """What the log has of a finished job. Raises Away or, with `results`, Unreadable."""
        params = {"job_id": _id(job_id)} | ({"include_result": "true"} if results else {})
        return _listed(await self._look("/job-logs", params), "logs")

    async def logged_with(self, text: str, *, plugin: str, command: str) -> list[Document]:
        """Finished jobs of the command that have this text in their result or stderr, newest first. Raises Away."""
        params = {"plugin": _name(plugin), "command": _name(command), "query": text}
        return _listed(await self._look("/job-logs", params), "logs")

    async def jobs(self, *, plugin: str, command: str, most: int = 200) -> list[Document]:
        """The latest jobs of the command, newest first, finished or not. Raises Away or Unreadable."""
        params = {"plugin": _name(plugin), "command": _name(command), "limit": str(most)}
        return _listed(await self._look("/jobs", params), "jobs")

    async def plugin(self, name: str) -> Document | None:
        """What a plugin can do; None if there is no such plugin. Raises Away or DuctileRefused."""
        try:
            return _object(await self._get(f"/plugin/{_name(name)}"))
        except DuctileRefused as refusal:
            if refusal.status == httpx2.codes.NOT_FOUND:
                return None
            raise

    async def skills(self) -> Document:
        """All commands and pipelines. Raises Away or DuctileRefused."""
        return _object(await self._get("/skills"))

    async def health(self) -> Document:
        """Version and size of the queue. Raises Away unless a Ductile answers: a proxy does for one that is away."""
        try:
            found = _object(await self._get("/healthz"))
        except (DuctileRefused, Unreadable) as error:
            raise Away(f"what answers at {self._url} is no Ductile: to /healthz it says: {error}") from error
        if not is_health(found):
            raise Away(f"what answers at {self._url} is no Ductile: its /healthz tells no queue_depth")
        return found

    async def queue_depth(self) -> int | None:
        try:
            async with asyncio.timeout(QUEUE_WITHIN_S):
                depth = (await self.health()).get("queue_depth")
        except (Away, TimeoutError):
            return None
        return depth if isinstance(depth, int) else None

    async def permits(self, method: str, path: str) -> bool:
        """Whether the token opens what does not exist. Raises Away, or DuctileRefused for an unknown token."""
        return await self._answered(method, path) != httpx2.codes.FORBIDDEN

    async def shows(self, path: str) -> bool:
        return httpx2.codes.is_success(await self._answered("GET", path))

    async def _answered(self, method: str, path: str) -> int:
        try:
            status, answer = await self._exchange(self._http, method, path, content=b"{}" if method == "POST" else None)
        except (httpx2.HTTPError, TimeoutError, Unreadable) as error:
            raise self._away(error) from error
        if status == httpx2.codes.UNAUTHORIZED:
            raise DuctileRefused(status, _quote(answer))
        if httpx2.codes.is_server_error(status) or httpx2.codes.is_redirect(status) or status in _LATER:
            raise Away(f"what answers at {self._url} says {status}")
        return status

    async def may_follow_events(self) -> bool:
        """Whether the token opens the stream of events. Raises Away."""
        try:
            async with self.events(silent_s=CONNECT_WITHIN_S):
                return True
        except DuctileRefused:
            return False

    @asynccontextmanager
    async def events(self, *, silent_s: float) -> AsyncIterator[httpx2.EventSource]:
        """The stream of events, that must say something every `silent_s`. Raises DuctileRefused or Away."""
        timeout = httpx2.Timeout(silent_s, connect=CONNECT_WITHIN_S)
        try:
            async with self._http.stream("GET", "/events", timeout=timeout) as response:
                _accept(response.status_code, b"", at=self._url)
                yield httpx2.EventSource(response)
        except (httpx2.HTTPError, httpx2.SSEError, httpx2.StreamError) as error:
            raise Away(f"the stream of events ended ({type(error).__name__})") from error

    def _away(self, error: Exception) -> Away:
        if isinstance(error, _UNSENT):
            return Away(f"nothing answers at {self._url} ({type(error).__name__})")
        return Away(f"the Ductile at {self._url} did not answer ({type(error).__name__})")

    async def _start(self, path: str, payload: Mapping[str, JsonValue]) -> str:
        body = json.dumps({"payload": dict(payload)}, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"}
        try:
            status, answer = await self._exchange(self._starts, "POST", path, content=body, headers=headers)
        except _UNSENT as error:
            raise NotSent(f"nothing answers at {self._url} ({type(error).__name__})") from error
        except (httpx2.HTTPError, Unreadable, TimeoutError) as error:
            raise Lost(f"Ductile was asked, and its answer was lost ({type(error).__name__})") from error
        if (words := own_refusal(status, answer)) is not None:
            raise DuctileRefused(status, printable(words, LONGEST_QUOTE))
        return _started(status, answer)

    async def _look(self, path: str, params: Mapping[str, str] | None = None) -> JsonValue:
        try:
            return await self._get(path, params)
        except DuctileRefused as refusal:
            raise Away(str(refusal), refused=True) from refusal

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> JsonValue:
        try:
            status, body = await self._exchange(self._http, "GET", path, params=params)
        except (httpx2.HTTPError, TimeoutError) as error:
            raise self._away(error) from error
        _accept(status, body, at=self._url)
        if not body:
            raise Unreadable("Ductile answered nothing")
        try:
            found: JsonValue = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Away(f"what answers at {self._url} is no Ductile: no JSON") from error
        return found

    async def _exchange(self, http: httpx2.AsyncClient, method: str, path: str, **sent: Any) -> tuple[int, bytes]:
        async with asyncio.timeout(self._timeout_s), http.stream(method, path, **sent) as response:
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
    async with _open_clients(settings, transport) as (http, starts):
        yield DuctileApi(http, starts, url=settings.url, timeout_s=settings.request_timeout_s)


@asynccontextmanager
async def _open_clients(
    settings: DuctileSettings, transport: httpx2.AsyncBaseTransport | None
) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    tls = _tls(settings)
    looks = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)
    once = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    asking = transport or httpx2.AsyncHTTPTransport(verify=tls, limits=looks, trust_env=False)
    starting = transport or httpx2.AsyncHTTPTransport(
        verify=tls, limits=once, trust_env=False, socket_options=[_RESET_AT_CLOSE]
    )
    async with _client(settings, asking) as http, _client(settings, starting) as starts:
        yield http, starts


def _client(settings: DuctileSettings, transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=settings.url,
        auth=Bearer(settings.token),
        timeout=httpx2.Timeout(settings.request_timeout_s, connect=CONNECT_WITHIN_S),
        transport=transport,
        trust_env=False,
    )


def _tls(settings: DuctileSettings) -> ssl.SSLContext:
    is_needed = settings.url.startswith("https:")
    return ssl.create_default_context() if is_needed else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _name(name: str) -> str:
    if not subjects.NAME.fullmatch(name):
        raise DuctileRefused(0, f"{name[:80]!r} is not a legal name, so it was not asked for")
    return name


def _id(job_id: str) -> str:
    if not _JOB_ID.fullmatch(job_id):
        raise Away(f"{job_id[:80]!r} is no id of a job")
    return job_id


def _accept(status: int, body: bytes, *, at: str) -> None:
    if httpx2.codes.is_success(status):
        return
    if httpx2.codes.is_client_error(status):
        raise DuctileRefused(status, _quote(body), own=own_refusal(status, body) is not None)
    raise Away(f"what answers at {at} says {status}")


def _started(status: int, body: bytes) -> str:
    try:
        job_id = json.loads(body)["job_id"] if status == httpx2.codes.ACCEPTED else None
    except (ValueError, TypeError, KeyError, RecursionError):
        job_id = None
    if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id):
        raise Lost(f"the answer is not Ductile's: {status} {_quote(body)}")
    return job_id


def _quote(body: bytes) -> str:
    return printable(body[:LONGEST_QUOTE].decode(errors="replace").strip(), LONGEST_QUOTE) or "no reason given"


def _object(found: JsonValue) -> Document:
    if not isinstance(found, dict):
        raise Away("what answers there is no Ductile: no object")
    return found


def _objects(found: JsonValue) -> list[Document]:
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _listed(found: JsonValue, name: str) -> list[Document]:
    return _objects(_object(found).get(name))
