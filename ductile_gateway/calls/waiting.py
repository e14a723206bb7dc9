"""Calls that wait outside of their tool: for a Ductile or an agent that is away, for a place. For who asks why."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ductile_gateway.calls.call import Asked
from ductile_gateway.calls.excerpts import printable
from ductile_gateway.ports import Clock
from schemas.gateway_status import Finding, WaitingCall

WORTH_TELLING = timedelta(seconds=5)
FORGOTTEN_AFTER = timedelta(seconds=60)
"""A message comes again every few seconds: one that does not is somebody else's by now, or gone."""
MOST_TOLD = 50


@dataclass(frozen=True, slots=True)
class _Wait:
    asked: Asked
    since: datetime
    seen: datetime
    why: str


class WaitingCalls:
    """By key; `note` each time that a call is put off, `over` once it is not any more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[str, _Wait] = {}
        self._in_line: dict[str, _Wait] = {}

    def note(self, asked: Asked, why: str) -> None:
        now = self._clock.now()
        known = self._waits.get(asked.key) or _Wait(asked, now, now, why)
        self._waits[asked.key] = replace(known, seen=now, why=printable(why))

    @contextlib.contextmanager
    def in_line(self, asked: Asked, why: str) -> Iterator[None]:
        """It waits in hand, inside the context; perhaps for something else than before it came again."""
        now, known = self._clock.now(), self._waits.get(asked.key)
        self._in_line[asked.key] = _Wait(asked, known.since if known else now, now, why)
        try:
            yield
        finally:
            del self._in_line[asked.key]

    def over(self, key: str) -> None:
        self._waits.pop(key, None)

    def why(self, key: str) -> str | None:
        wait = self._waits.get(key)
        return wait.why if wait else None

    def told(self) -> tuple[WaitingCall, ...]:
        now = self._clock.now()
        self._waits = {key: wait for key, wait in self._waits.items() if now - wait.seen < FORGOTTEN_AFTER}
        waits = self._waits | self._in_line
        long = [wait for wait in waits.values() if now - wait.since >= WORTH_TELLING]
        return tuple(_told(wait) for wait in sorted(long, key=lambda wait: wait.since)[:MOST_TOLD])


def look_at_waiting(calls: Sequence[WaitingCall]) -> Sequence[Finding]:
    if not calls:
        return ()
    first, number = calls[0], f"{len(calls)}{' or more' if len(calls) == MOST_TOLD else ''}"
    which = f"step {first.step}" + (f" task {first.task}" if first.task else "")
    text = f"{number} calls wait, that of {first.run_id} {which} since {first.since:%H:%M:%SZ}: {first.why}"
    remedy = "mend what they wait for: they are made then, or given up at their deadlines"
    return [Finding(name="gateway calls", mark="warning", text=text, remedy=remedy)]


def _told(wait: _Wait) -> WaitingCall:
    request = wait.asked.request
    return WaitingCall(
        run_id=request.run_id,
        step=request.step,
        tool=request.tool,
        attempt=request.attempt,
        task=request.task,
        round=request.round,
        since=wait.since,
        until=request.deadline_at,
        why=wait.why,
    )
