"""The HTTP client under a model's SDK (no proxies of the environment, no redirects, the key as it is now), and streams.

Every line of a streamed reply is a sign of life, so that the time limit is for silence only. What came before the end
is kept, so that a call that is cut off is charged what it said. A server that does not stream is heard as well.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import httpx2
from pydantic import SecretStr

from agent_service.models.prices import TokenCounts
from agent_service.models.settings import OF_ENVIRONMENT, ModelSettings
from groundwork.http.tls import usual_authorities
from groundwork.service.address import keeps_secrets, without_login
from groundwork.service.errors import Misconfigured

_KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
]
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


def connection(settings: ModelSettings, key: SecretStr | None) -> httpx2.AsyncClient:
    more: dict[str, Any] = {"event_hooks": {"request": [_sent_with(key)]}} if key else {}
    tls = usual_authorities()
    if settings.proxy == OF_ENVIRONMENT:
        return httpx2.AsyncClient(verify=tls, limits=_LIMITS, trust_env=True, **more)
    transport = httpx2.AsyncHTTPTransport(
        verify=tls, limits=_LIMITS, trust_env=False, proxy=settings.proxy, socket_options=_KEEP_ALIVE
    )
    return httpx2.AsyncClient(transport=transport, trust_env=False, **more)


def check_way(settings: ModelSettings, address: str) -> None:
    """`address` is the one called, which SDKs also take from the environment. Raises Misconfigured."""
    if settings.api_key is None or settings.allow_http_nonloopback or keeps_secrets(address):
        return
    why = "the key would go over plain http to another machine, and could be read on the way"
    remedy = "use https, or set agent.model.allow_http_nonloopback"
    raise Misconfigured(f"agent.model.base_url {without_login(address)}: {why}: {remedy}")


def _sent_with(key: SecretStr) -> Callable[[httpx2.Request], Awaitable[None]]:
    async def put(request: httpx2.Request) -> None:
        request.headers["Authorization"] = f"Bearer {key.get_secret_value()}"

    return put


Event = dict[str, Any]
DONE = "[DONE]"


class Body(Protocol):
    @property
    def headers(self) -> Any: ...

    async def read(self) -> bytes: ...

    def iter_bytes(self) -> AsyncIterator[bytes]: ...


class SaidError(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Heard:
    def __init__(self, silence: asyncio.Timeout, timeout_s: float) -> None:
        self.model = ""
        self.counts: TokenCounts | None = None
        self.said = 0
        """Bytes of the reply and of the thinking that it shows."""
        self.hidden = False
        self._silence, self._timeout_s = silence, timeout_s

    @property
    def begun(self) -> bool:
        return self.counts is not None or self.said > 0

    def alive(self) -> None:
        self._silence.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    def says(self, text: object) -> None:
        self.said += len(text.encode("utf-8", "replace")) if isinstance(text, str) else 0


def is_whole(body: Body) -> bool:
    return "json" in str(body.headers.get("content-type", ""))


async def events(body: Body, heard: Heard) -> AsyncIterator[Event]:
    """Raises SaidError, and ValueError for what is no JSON."""
    heard.alive()
    async for data in _data(body, heard):
        if data == DONE:
            return
        event = json.loads(data)
        if isinstance(event, dict) and (error := event.get("error")):
            raise _error(error)
        if isinstance(event, dict):  # what else there is says nothing that is known
            yield event


def _error(error: object) -> SaidError:
    told = error if isinstance(error, dict) else {"message": error}
    return SaidError(str(told.get("type") or told.get("code") or ""), str(told.get("message") or error))


async def _data(body: Body, heard: Heard) -> AsyncIterator[str]:
    said: list[bytes] = []
    async for line in _lines(body, heard):
        if line.startswith(b"data:"):
            said.append(line[5:].removeprefix(b" "))
        elif not line and said:
            yield b"\n".join(said).decode()
            said.clear()


async def _lines(body: Body, heard: Heard) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in body.iter_bytes():
        rest += chunk
        *lines, last = rest.split(b"\n") if b"\n" in chunk else [rest]
        for line in lines:
            heard.alive()
            yield bytes(line.removesuffix(b"\r"))
        rest = last
