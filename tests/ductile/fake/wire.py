"""Requests and answers of the fake, apart from sockets, and what can go wrong on the way."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """headers: by lower-case name. body: empty where it came without a Content-Length."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """stream: frames that follow the head. With the status 0 the connection is cut off instead."""

    status: int
    body: bytes = b""
    content_type: str | None = "application/json"
    headers: Mapping[str, str] | None = None
    stream: Callable[[], Iterator[bytes]] | None = None


class Refused(Exception):
    """The request gets this answer instead of what it asked for."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer = says(status, {"error": text})


def says(status: int, body: Any) -> Answer:
    """An answer in JSON, ended by a newline as Ductile's are."""
    return Answer(status, json.dumps(body).encode() + b"\n")


LOST = Answer(0)
UNAVAILABLE = says(503, {"error": "too many concurrent synchronous requests"})


@dataclass(slots=True)
class Faults:
    """Switches that may be turned at any time; they are looked at for every request.

    proxied: what something on the way answers to everything, while Ductile is away behind it.
    strangers: what is answered to the next POSTs instead, and whether they were carried out before.
    """

    proxied: Answer | None = None
    strangers: list[tuple[Answer, bool]] = field(default_factory=list)
