"""The agent's HTTP API. Nothing is taken from the environment but what the client was given: no proxies, no netrc."""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2

from agentic_client.errors import AgenticError, Broken, Unreachable, refused
from agentic_client.transport import SILENT_AT_MOST_S, Filters, Json

CONNECT_WITHIN_S = 5.0
STREAM_SILENT_AT_MOST_S = 60.0
"""Of an event stream, which says something every few seconds."""
EVENTS = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
_PATHS = {"cancel": "cancel", "approve": "approvals", "answer": "answers", "signal": "signals"}


class OverHttp:
    """Fills Transport. `address` is that of the agent's API, `tls` how its certificate is checked."""

    def __init__(self, address: str, token: str | None, tls: ssl.SSLContext | None) -> None:
        self._address = address
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        verify = tls or address.startswith("https:")  # to load certificates takes longer than most answers
        timeout = httpx2.Timeout(SILENT_AT_MOST_S, connect=CONNECT_WITHIN_S)
        self._http = httpx2.AsyncClient(
            base_url=address, headers=headers, timeout=timeout, verify=verify, trust_env=False
        )

    async def wake(self, body: Json) -> Json:
        return await self._json("POST", "/v1/wake", json=body)

    async def run(self, run_id: str, wait_s: float) -> Json:
        within = httpx2.Timeout(SILENT_AT_MOST_S + wait_s, connect=CONNECT_WITHIN_S)
        return await self._json("GET", _run(run_id), params={"wait": f"{wait_s:g}"} if wait_s else {}, timeout=within)

    async def runs(self, filters: Filters) -> Json:
        return await self._json("GET", "/v1/runs", params=dict(filters))

    async def say(self, run_id: str, what: str, body: Json) -> Json:
        return await self._json("POST", _run(run_id, _PATHS[what]), json=body)

    async def entries(self, run_id: str, after: int) -> AsyncGenerator[Json, None]:
        headers = {LAST_EVENT_ID: str(after)} if after else {}
        timeout = httpx2.Timeout(SILENT_AT_MOST_S, read=STREAM_SILENT_AT_MOST_S, connect=CONNECT_WITHIN_S)
        request = self._http.build_request("GET", _run(run_id, "events"), headers=headers, timeout=timeout)
        async with self._answered(request, stream=True) as answer:
            if answer.status_code == httpx2.codes.NO_CONTENT:
                return
            if not answer.headers.get("content-type", "").startswith(EVENTS):
                raise self._no_agent(answer)
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    async def tools(self) -> Json:
        return await self._json("GET", "/v1/tools")

    async def files(self, run_id: str) -> Json:
        return await self._json("GET", _run(run_id, "workspace"))

    async def read(self, run_id: str, path: str) -> bytes:
        async with self._answered(self._http.build_request("GET", _run(run_id, "workspace", path))) as answer:
            return answer.content

    async def close(self) -> None:
        await self._http.aclose()

    async def _json(self, method: str, path: str, **more: Any) -> Json:
        async with self._answered(self._http.build_request(method, path, **more)) as answer:
            found = _read(answer)
        if not isinstance(found, dict):
            raise self._no_agent(answer)
        return found

    @asynccontextmanager
    async def _answered(self, request: httpx2.Request, *, stream: bool = False) -> AsyncIterator[httpx2.Response]:
        """The answer to `request`, which is a success. With `stream` its body is still to come."""
        try:
            answer = await self._http.send(request, stream=stream)
            try:
                if not answer.is_success:
                    await answer.aread()
                    raise self._refused(answer)
                yield answer
            finally:
                await answer.aclose()
        except httpx2.RequestError as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"no agent answers at {self._address} ({why}): is it running, is it there?") from error

    def _refused(self, answer: httpx2.Response) -> AgenticError:
        return refused(answer.status_code, _read(answer), retry_after=answer.headers.get("retry-after"))

    def _no_agent(self, answer: httpx2.Response) -> Broken:
        text = f"what answers at {self._address} is no agent: give the address of an agent's HTTP API"
        return Broken(text, status=answer.status_code)


def _read(answer: httpx2.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def _run(run_id: str, *parts: str) -> str:
    return "/".join(("/v1/runs", quote(run_id, safe=""), *map(quote, parts)))
