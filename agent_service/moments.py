"""Moments: the journal as it is told, each entry with the run as it was before and after. Pure.

Whoever shows or measures runs takes moments: as they are committed, or told again from the journal, which is the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_service.core.decide import decide
from agent_service.core.events import CallReserved, Event
from agent_service.core.state import RunState
from agent_service.core.waiting import (
    Asking,
    Ended,
    ForAnswer,
    ForApproval,
    ForModel,
    ForPerson,
    ForTool,
    ModelRetry,
    Pending,
    Status,
    Stop,
    ToolRetry,
    Waiting,
    under_way,
)
from agent_service.journal import Entry


class Journals(Protocol):
    """The part of the port Archive that is enough to tell runs again."""

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """The run's entries with `seq` > `after`, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One entry of a journal, and what it changed. `before` is None for the first."""

    entry: Entry
    event: Event
    before: RunState | None
    after: RunState

    @property
    def ended(self) -> bool:
        """A run that an answer set going again may end once more."""
        waiting = self.after.waiting
        return isinstance(waiting, Ended) and waiting.stop.entry == self.entry.seq

    @property
    def paused(self) -> bool:
        """Whether people are asked for something with this entry, for which the run rests now."""
        match self.after.waiting:
            case ForPerson(stop=Stop(entry=entry)) | ForApproval(entry=entry) | ForAnswer(entry=entry):
                return entry == self.entry.seq
        return False

    @property
    def resumed(self) -> bool:
        return self.after.status is Status.RUNNING and self._status_before is Status.PAUSED

    @property
    def reopened(self) -> bool:
        """Whether an answer set the run going again, which had ended."""
        return self.before is not None and self.after.reopened > self.before.reopened

    @property
    def sent(self) -> Pending | None:
        """The attempt that left for its tool."""
        waiting = self._new
        return waiting.pending if isinstance(waiting, ForTool) else None

    @property
    def retry(self) -> ToolRetry | None:
        """The attempt that waits to be sent, after a failed one."""
        waiting = self._new
        return waiting if isinstance(waiting, ToolRetry) else None

    @property
    def asked(self) -> Asking | None:
        """The model call that was made."""
        waiting = self.after.waiting
        if not isinstance(waiting, ForModel) or (self.before and waiting == self.before.waiting):
            return None
        # a reserve is the other half of a call that was asked for before
        return None if isinstance(self.event, CallReserved) else waiting.asking

    @property
    def put_off(self) -> ModelRetry | None:
        """The model call that is made again later."""
        waiting = self._new
        return waiting if isinstance(waiting, ModelRetry) else None

    @property
    def _status_before(self) -> Status | None:
        return self.before.status if self.before else None

    @property
    def _new(self) -> Waiting | None:
        """What the run waits for now, or will when it is resumed, where this entry changed it."""
        waiting = under_way(self.after.waiting)
        return waiting if self.before is None or waiting != under_way(self.before.waiting) else None


def tell(before: RunState | None, entry: Entry) -> Moment:
    """The moment of the entry that follows `before`. Raises ValueError for an entry that cannot follow it."""
    event = entry.decoded()
    transition = decide(before, event)
    if transition.state is None or transition.ignored:
        raise ValueError(f"run {entry.run_id}: entry {entry.seq} changes nothing ({transition.ignored})")
    return Moment(entry=entry, event=event, before=before, after=transition.state)


def retell(entries: Iterable[Entry], before: RunState | None = None) -> Iterator[Moment]:
    """The moments of entries that follow on `before`; without it, of a journal from its first entry on.

    Raises ValueError as `tell` does.
    """
    for entry in entries:
        moment = tell(before, entry)
        before = moment.after
        yield moment
