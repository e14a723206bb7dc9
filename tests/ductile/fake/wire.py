"""Requests and answers of the fake, apart from sockets, and what can go wrong on the way."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Request:
    """headers: by lower-case name. sized: the body came with a Content-Length; a chunked one did not."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
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


@dataclass(slots=True)
class Faults:
    """Switches that may be turned at any time; they are looked at for every request.

    lost_202: so many of the next POSTs are carried out and then cut off before their answer.
    unavailable_after_enqueueing: so many of the next POSTs are carried out and then answered with 503.
    proxied: what something on the way answers to everything, while Ductile is away behind it.
    strangers: what something on the way answers to the next POSTs, and whether it has let them pass before.
    """

    lost_202: int = 0
    unavailable_after_enqueueing: int = 0
    proxied: Answer | None = None
    strangers: list[tuple[Answer, bool]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def stranger(self) -> tuple[Answer | None, bool]:
        """What something on the way answers to this POST, and whether Ductile gets it."""
        with self._lock:
            return self.strangers.pop(0) if self.strangers else (None, True)

    def take(self, counted: Literal["lost_202", "unavailable_after_enqueueing"]) -> bool:
        """Whether this POST is one of those to go wrong; it is counted then."""
        with self._lock:
            left: int = getattr(self, counted)
            setattr(self, counted, max(0, left - 1))
            return left > 0
