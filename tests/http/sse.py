"""Reading an event stream as many clients do: line by line, where Unicode knows more ends of lines than SSE does."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    name: str
    data: dict[str, Any]


async def events(answer: httpx2.Response) -> AsyncIterator[Event]:
    """The events of a stream, each with exactly an id, a name and one line of data. Comments are left out."""
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
