"""Time, a bus and people, played: no instant is waited for, and a message arrives when it is due."""

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import field
from datetime import UTC, datetime, timedelta

from ulid import ULID

from agent_service.core.state import RunState
from agent_service.core.waiting import Approval, Status
from agent_service.workbench.evaluation.observed import Said
from agent_service.workbench.evaluation.scenario import PersonsSignal, Scenario
from schemas import subjects
from schemas.events import Cancel, Envelope, Signal
from schemas.values import dataclass

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


class PlayedPerson:
    """Signals and cancels runs as the file says, over the bus, once each. Place 0 is the scenario's run."""

    def __init__(self, scenario: Scenario, bus: PlayedBus, clock: PlayedClock) -> None:
        self._signals = scenario.signals
        self._when_paused = [signal for signal in scenario.signals if signal.when_paused]
        self._when_escalated = [signal for signal in scenario.signals if signal.when_escalated]
        self._bus = bus
        self._clock = clock
        self._done = 0

    def sees_step(self, state: RunState, step: int, place: int) -> None:
        for signal in self._signals:
            if signal.during_step == step and (signal.child or 0) == place:
                self._bus.send(*self._said(state, signal), after_s=signal.after_s)

    def sees_rest(self, state: RunState, place: int) -> None:
        left = self._when_escalated if state.status is Status.ESCALATED else self._when_paused
        signal = next((signal for signal in left if (signal.child or 0) == place), None)
        if signal:
            left.remove(signal)
            self._bus.send(*self._said(state, signal), after_s=signal.after_s)

    def during_call(self, state: RunState, call: int, place: int) -> Iterator[tuple[str, bytes]]:
        for signal in self._signals:
            if signal.during_call == call and (signal.child or 0) == place:
                yield self._said(state, signal)

    def _said(self, state: RunState, signal: PersonsSignal) -> tuple[str, bytes]:
        self._done += 1
        if signal.kind == "cancel":
            cancel = Cancel(run_id=state.run_id, reason=signal.message)
            return subjects.CANCEL, Envelope[Cancel](type=subjects.CANCEL, payload=cancel).body()
        at = self._clock.later(signal.after_s)
        asked = state.ask.subject_hash if isinstance(state.ask, Approval) else None
        payload = Signal(
            run_id=state.run_id,
            signal_id=f"s{self._done}",
            kind=signal.kind,
            message=signal.message,
            constraints=signal.constraints.constraints(at) if signal.constraints else None,
            arguments_hash=signal.arguments_hash or asked,
            outcome=signal.outcome,
        )
        return subjects.SIGNAL, Envelope[Signal](type=subjects.SIGNAL, payload=payload).body()
