"""Requests and answers of the fake, apart from sockets."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """sized: the body came with a Content-Length; a chunked one did not."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    sized: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """enqueued: a job was made, so that a fault may now hide this answer. stream: frames that follow the head."""

    status: int
    body: bytes = b""
    content_type: str | None = "application/json"
    headers: Mapping[str, str] | None = None
    enqueued: bool = False
    stream: Callable[[], Iterator[bytes]] | None = None


class Refused(Exception):
    """The request gets this answer instead of what it asked for."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer = says(status, {"error": text})


def says(status: int, body: Any, *, enqueued: bool = False) -> Answer:
    """An answer in JSON, ended by a newline as Ductile's are."""
    return Answer(status, json.dumps(body).encode() + b"\n", enqueued=enqueued)
