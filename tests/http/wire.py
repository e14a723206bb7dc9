"""Raw requests that no client library would send, and event streams."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.http.house import secret

WITHIN_S = 10.0
HEAD = f"Host: 127.0.0.1\r\nAuthorization: Bearer {secret('admin')}\r\n"


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Bytes received until the server closed or fell silent; `status` 0 for none."""

    text: str
    closed: bool

    @property
    def status(self) -> int:
        return int(self.text.split(" ", 2)[1]) if self.text.startswith("HTTP/") else 0

    @property
    def answers(self) -> int:
        return self.text.count("HTTP/1.1 ")


async def send(port: int, request: str | bytes, *, silence_s: float = 0.5) -> RawAnswer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received, closed = b"", False
    try:
        writer.write(request.encode("latin-1") if isinstance(request, str) else request)
        async with asyncio.timeout(WITHIN_S):
            while not closed:
                part = await asyncio.wait_for(reader.read(65_536), silence_s if received else WITHIN_S)
                received, closed = received + part, not part
    except TimeoutError:
        pass
    except ConnectionError:
        closed = True
    finally:
        writer.close()
    return RawAnswer(received.decode("latin-1"), closed)


async def get(port: int, target: str, head: str = HEAD) -> RawAnswer:
    return await send(port, f"GET {target} HTTP/1.1\r\n{head}Connection: close\r\n\r\n")


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    name: str
    data: dict[str, Any]


async def events(answer: httpx2.Response) -> AsyncGenerator[Event]:
    """Events of a stream, each with exactly an id, a name and one line of data; without comments."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            assert name not in fields, f"{name} comes twice in one event"
            fields[name] = value
        elif fields:
            assert fields.keys() == {"id", "event", "data"}
            yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}
    assert not fields, "the stream ended within an event"


async def followed(
    client: httpx2.AsyncClient, path: str, *, after: int | None = None, most: int = 1000, within_s: float = 20.0
) -> list[Event]:
    """Up to `most` events after that id; then the reader disconnects. None where it is told not to come back."""
    told: list[Event] = []
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    async with (
        asyncio.timeout(within_s),
        client.stream("GET", path, headers=headers) as answer,
        aclosing(events(answer)) as stream,
    ):
        while len(told) < most and (event := await anext(stream, None)):
            told.append(event)
        assert answer.status_code == (200 if told or not most else 204)
    return told
