"""Journal events: each entry with the run before and after it, as committed or replayed from the journal."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from agent_service.core.decide import decide
from agent_service.core.events import CallReserved, Event, SignalReceived, StoodStill, TimerFired, ToolReturned
from agent_service.core.graph.gathered import task_of
from agent_service.core.limits import paid_with
from agent_service.core.people.reopening import settled_with
from agent_service.core.state import RunState, StepRecord
from agent_service.core.tools.attempts import Evidence, Flight, Pending
from agent_service.core.tools.correlate import judge
from agent_service.core.tools.flights import flight_of, flights, gathering_of
from agent_service.core.waiting import (
    Asking,
    Ended,
    NeedsPerson,
    Sleeping,
    Status,
    Thinking,
    Waiting,
    acting_of,
    under_way,
)
from agent_service.run.journal import Entry
from schemas.events import ToolResult


class Journals(Protocol):
    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """The run's entries with `seq` > `after`, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """`before` is None for the first."""

    entry: Entry
    event: Event
    before: RunState | None
    after: RunState

    @property
    def ended(self) -> bool:
        waiting = self.after.waiting
        return isinstance(waiting, Ended) and waiting.stop.entry == self.entry.seq

    @property
    def paid_usd(self) -> float:
        return paid_with(self.before, self.event, self.after)

    @property
    def paused(self) -> bool:
        waiting = self.after.waiting
        return isinstance(waiting, NeedsPerson) and waiting.entry == self.entry.seq

    @property
    def resumed(self) -> bool:
        return self.after.status is Status.RUNNING and self._status_before is Status.PAUSED

    @property
    def reopened(self) -> bool:
        return self.before is not None and self.after.reopened > self.before.reopened

    @property
    def sent(self) -> tuple[Pending, ...]:
        return tuple(flight.pending for flight in self._new_flights if flight.retry_at is None)

    @property
    def retry(self) -> Flight | None:
        return next((flight for flight in self._new_flights if flight.retry_at is not None), None)

    @property
    def answered(self) -> Pending | None:
        """The attempt whose answer came, or that timed out."""
        flight = self._answered_flight()
        return flight.pending if flight and flight.retry_at is None else None

    @property
    def kept(self) -> tuple[Flight, ...]:
        return tuple(
            flight for flight in flights(self.after.waiting) if self.reopened and flight not in self._new_flights
        )

    @property
    def settled_by_answer(self) -> tuple[tuple[Pending, ToolResult], ...]:
        """After a reopening: what was in flight at the end, with the late result or person's word that settles it."""
        ended, event = self.before.waiting if self.before else None, self.event
        if self.before is None or not isinstance(ended, Ended) or not isinstance(event, SignalReceived):
            return ()
        still = {flight.pending.name for flight in flights(self.after.waiting)}
        over = (flight.pending for flight in _under_way(self.before) if flight.pending.name not in still)
        return tuple((pending, settled_with(self.before, ended, pending, event)) for pending in over)

    @property
    def finished(self) -> tuple[StepRecord, ...]:
        return self.after.completed[len(self.before.completed) :] if self.before else ()

    @property
    def gathered(self) -> tuple[Evidence, ...]:
        known = len(self.before.evidence) if self.before else 0
        return self.after.evidence[known:]

    @property
    def asks_for_more(self) -> bool:
        if not isinstance(self.event, ToolReturned) or self.event.result.status != "continuation":
            return False
        pending = self.answered
        if pending is None:
            return False
        gathering = gathering_of(self.after.waiting, pending.step)
        asker = task_of(gathering, pending.task) if gathering else None
        return asker is not None and bool(asker.asks)

    @property
    def asked(self) -> Asking | None:
        if not self.after.calling or (self.before and self.after.waiting == self.before.waiting):
            return None
        # a reserve is the other half of a call that was asked for before
        return None if isinstance(self.event, CallReserved) else self.after.calling

    @property
    def waits(self) -> Sleeping | None:
        waiting = self._new
        return waiting if isinstance(waiting, Sleeping) else None

    @property
    def put_off(self) -> tuple[Asking, datetime] | None:
        """A model call that is made again later, and when."""
        waiting = self._new
        return (waiting.asking, waiting.retry_at) if isinstance(waiting, Thinking) and waiting.retry_at else None

    def _answered_flight(self) -> Flight | None:
        before = self.before
        if before is None or not flights(before.waiting) or self.after.ending_class == "protocol_violation":
            return None
        match self.event:
            case ToolReturned(result=result, place=place):
                return _answered_by(before, result, place)
            case TimerFired(at=at) if at < before.brief.limits.deadline_at:
                due = min(acting_of(before.waiting).timed, key=lambda one: one.due_at)
                return due if isinstance(due, Flight) else None
        return None

    @property
    def _new_flights(self) -> tuple[Flight, ...]:
        if isinstance(self.event, StoodStill):  # what was under way is, until later
            return ()
        known = _under_way(self.before) if self.before else ()
        return tuple(flight for flight in flights(self.after.waiting) if flight not in known)

    @property
    def _status_before(self) -> Status | None:
        return self.before.status if self.before else None

    @property
    def _new(self) -> Waiting | None:
        waiting = under_way(self.after.waiting)
        return waiting if self.before is None or waiting != under_way(self.before.waiting) else None


def _answered_by(run: RunState, result: ToolResult, place: str) -> Flight | None:
    if gathering_of(run.waiting, result.step) is None:
        return flight_of(run.waiting, result.step)
    pending = judge(run, result, place).pending
    return Flight(pending=pending) if pending else None


def _under_way(run: RunState) -> tuple[Flight, ...]:
    return flights(opened(run))


def opened(run: RunState) -> Waiting:
    return run.waiting.held or run.waiting if isinstance(run.waiting, Ended) else run.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A commit of another agent of the same store. `position` is its place in the journal of all runs, `by` the member,
    `status` the run's after it. The run itself is read from the store where needed.
    """

    entry: Entry
    position: int
    by: str
    status: Status
    caller: str
    paid_usd: float = 0.0
    opened: int = 0

    @property
    def run_id(self) -> str:
        return self.entry.run_id


def tell(before: RunState | None, entry: Entry) -> Moment:
    """Raises ValueError for an entry that cannot follow it."""
    event = entry.decoded()
    transition = decide(before, event)
    if transition.state is None or transition.ignored:
        raise ValueError(f"run {entry.run_id}: entry {entry.seq} changes nothing ({transition.ignored})")
    return Moment(entry=entry, event=event, before=before, after=transition.state)


def retell(entries: Iterable[Entry], before: RunState | None = None) -> Iterator[Moment]:
    """Entries that follow on `before`; without it, a journal from its first entry. Raises ValueError as `tell` does."""
    for entry in entries:
        moment = tell(before, entry)
        before = moment.after
        yield moment
