"""Time and a bus, played: no instant is waited for, and a message arrives when it is due."""

import hashlib
import heapq
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ulid import ULID

from schemas import subjects

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""When every run begins: the same prompt for the same run, so that a recording fits."""


class PlayedClock:
    def __init__(self, name: str) -> None:
        self._name = name
        self._now = BEGIN

    def now(self) -> datetime:
        return self._now

    def new_run_id(self) -> str:
        return f"run_{ULID.from_bytes(hashlib.sha256(self._name.encode()).digest()[:16])}"

    def later(self, seconds: float) -> datetime:
        return self._now + timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        self._now = self.later(seconds)

    def advance_to(self, instant: datetime) -> None:
        """Never back: what was due while something else went on is late."""
        self._now = max(self._now, instant)

    def seconds(self) -> float:
        return (self._now - BEGIN).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


WORK = (subjects.START, subjects.TOOL_RESULT, f"{subjects.TOOL_REQUEST}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    at: datetime
    subject: str
    key: str
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)["payload"]
        return payload


@dataclass(frozen=True, slots=True, order=True)
class Due:
    at: datetime
    place: int
    subject: str = field(compare=False)
    body: bytes = field(compare=False)


class PlayedBus:
    def __init__(self, clock: PlayedClock) -> None:
        self.said: list[Said] = []
        self._clock = clock
        self._keys: set[str] = set()
        self._due: list[Due] = []
        self._places = 0

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        await self.tell(subject, body, key=key, headers=headers)

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        del headers
        if key in self._keys:
            return
        self._keys.add(key)
        self.said.append(Said(at=self._clock.now(), subject=subject, key=key, body=body))
        if subject.startswith(WORK):
            self.send(subject, body)

    def send(self, subject: str, body: bytes, *, after_s: float = 0.0) -> None:
        self._places += 1
        heapq.heappush(self._due, Due(self._clock.later(after_s), self._places, subject, body))

    @property
    def next_at(self) -> datetime | None:
        return self._due[0].at if self._due else None

    def next(self) -> Due:
        return heapq.heappop(self._due)
