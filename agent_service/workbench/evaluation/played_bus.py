"""A bus in this process: keeps what the agent says, once per key, and what is still to be delivered, by its instant."""

import heapq
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agent_service.workbench.evaluation.played_clock import PlayedClock
from schemas import subjects

WORK = (subjects.START, f"{subjects.TOOL_REQUEST}.")
"""What the agent says that somebody takes up: itself, or the gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message of the agent."""

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
    """A message on its way. `place` counts messages, and orders those of one instant."""

    at: datetime
    place: int
    subject: str = field(compare=False)
    body: bytes = field(compare=False)


class PlayedBus:
    """Fills the port Bus."""

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
        """Let a message arrive so much later."""
        self._places += 1
        heapq.heappush(self._due, Due(self._clock.later(after_s), self._places, subject, body))

    @property
    def next_at(self) -> datetime | None:
        """When the next message arrives."""
        return self._due[0].at if self._due else None

    def next(self) -> Due:
        return heapq.heappop(self._due)
