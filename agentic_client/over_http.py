"""Transport over the agent's HTTP API. It reads nothing but AGENTIC_… from the environment: no proxies, no netrc."""

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any

import httpx2

from agentic_client.calls import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Json, Path, Query, filled
from agentic_client.errors import Broken, Invalid, NotAllowed, TryAgain, Unreachable, refused
from schemas.bounded import LARGEST_FILE, LARGEST_JSON, Bounded, TooLong, json_object
from schemas.operations import Operation

STREAM_TIMEOUT_S = 60.0
ALLOW_HTTP = "AGENTIC_ALLOW_HTTP_NONLOOPBACK"
PLAIN = "identity"


class HttpTransport:
    """`display_name` is the address in error messages."""

    def __init__(self, address: str, token: str | None, tls: ssl.SSLContext | None, display_name: str) -> None:
        self._name = display_name or str(_url(address).copy_with(userinfo=b""))
        if token and _url(address).userinfo:
            raise Invalid("give a token (or AGENTIC_TOKEN), or a login in the address: only one of them would be sent")
        headers = {"Accept-Encoding": PLAIN} | ({"Authorization": f"Bearer {token}"} if token else {})
        verify = tls or address.startswith("https:")  # to load certificates takes longer than most answers
        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        self._http = httpx2.AsyncClient(
            base_url=_url(address), headers=headers, timeout=timeout, verify=verify, trust_env=False
        )

    async def ask(self, operation: Operation, path: Path, body: Json | None, query: Query) -> Json:
        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S + float(str(query.get("wait", 0.0))), connect=CONNECT_TIMEOUT_S)
        options: dict[str, Any] = {"json": body, "params": dict(query), "timeout": timeout}
        request = self._http.build_request(operation.method, filled(operation, path), **options)
        async with self._answered(request) as answer:
            return self._object(answer, await _content(answer, LARGEST_JSON))

    async def events(self, path: str, after: int) -> AsyncGenerator[Json, None]:
        """Yields the events of a stream after event `after`, until the stream ends."""
        headers = {"Last-Event-ID": str(after)} if after else {}
        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S, read=STREAM_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        request = self._http.build_request("GET", path, headers=headers, timeout=timeout)
        async with self._answered(request) as answer:
            if answer.status_code == httpx2.codes.NO_CONTENT:
                return
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise self._no_agent(answer)
            held = Bounded(LARGEST_JSON)
            async for piece in answer.aiter_raw():
                held.add(piece)
                for line in held.lines():
                    if line.startswith(b"data:"):
                        yield self._object(answer, line.removeprefix(b"data:"))

    async def content(self, path: str) -> bytes:
        async with self._answered(self._http.build_request("GET", path)) as answer:
            return await _content(answer, LARGEST_FILE)

    async def close(self) -> None:
        await self._http.aclose()

    def _object(self, answer: httpx2.Response, content: bytes) -> Json:
        if (found := json_object(content)) is None:
            raise self._no_agent(answer)
        return found

    @asynccontextmanager
    async def _answered(self, request: httpx2.Request) -> AsyncIterator[httpx2.Response]:
        try:
            answer = await self._http.send(request, stream=True)
            try:
                if answer.headers.get("content-encoding", PLAIN) != PLAIN:
                    raise self._no_agent(answer)
                if not answer.is_success:
                    problem = json_object(await _content(answer, LARGEST_JSON))
                    error = refused(answer.status_code, problem, retry_after=answer.headers.get("retry-after"))
                    # A proxy before an agent has no codes either, where it knows no login or reaches no agent.
                    is_ours = error.code or isinstance(error, TryAgain | NotAllowed | Broken)
                    raise error if is_ours else self._no_agent(answer)
                yield answer
            finally:
                await answer.aclose()
        except httpx2.RequestError as error:
            speaks_of_chunks = isinstance(error, httpx2.RemoteProtocolError)
            why = "the connection was closed" if speaks_of_chunks else str(error) or type(error).__name__
            start = "start one with `agentic dev`, or give another address"
            raise Unreachable(f"no agent answers at {self._name} ({why}): {start}") from error
        except TooLong as error:
            text = f"what answers at {self._name} sends {error} at once, which no agent does"
            raise Broken(text, status=answer.status_code) from error

    def _no_agent(self, answer: httpx2.Response) -> Broken:
        text = f"what answers at {self._name} is not an agent: give the address of an agent's HTTP API"
        return Broken(text, status=answer.status_code)


async def _content(answer: httpx2.Response, most: int) -> bytes:
    held = Bounded(most)
    async for piece in answer.aiter_raw():
        held.add(piece)
    return bytes(held)


def _url(address: str) -> httpx2.URL:
    with suppress(httpx2.InvalidURL):
        url = httpx2.URL(address)
        if url.scheme in ("http", "https") and url.host:
            return url
    raise Invalid("an agent's HTTP API has an address like http://127.0.0.1:8700")


def refuse_plain_http(address: str) -> None:
    """Raises NotAllowed if a token would go over plain http to another machine, unless the environment allows it."""
    found = _url(address)
    with suppress(ValueError):  # a name
        if ip_address(found.host).is_loopback:
            return
    if found.scheme == "https" or found.host == "localhost" or os.environ.get(ALLOW_HTTP) == "true":
        return
    why = f"the token would go over plain http to {found.host}, and could be read and used on the way"
    raise NotAllowed(f"{why}: use https, or say allow_http_nonloopback=True (or {ALLOW_HTTP}=true)")
