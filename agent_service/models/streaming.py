"""Reads a streamed reply: its events, and what they say so far of its cost.

Every line is a sign of life, so that the time limit is for silence only. What came before the end is kept, so that a
call that is cut off is charged what it said. A server that does not stream is heard as well.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Protocol

from agent_service.models.prices import TokenCounts

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
