"""Change records: each journal entry with the run before and after it, as committed or replayed."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol, Self

from agent_service.core.decide import decide, with_reserve
from agent_service.core.events import Event, ModelReplied, ModelUnavailable, Transition
from agent_service.core.facts import CallAsked, CallReserved, PersonAsked, RunEnded
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.run.journal import RULES, Commit, Entry, JournalRecord, facts_text, opened, paid_with
from schemas.values import dataclass


class Journals(Protocol):
    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Entries of the run with `seq` > `after`, in order."""


@dataclass(frozen=True, kw_only=True)
class ChangeRecord(JournalRecord):
    """A journal record with the run before (None for the first entry) and after it. `opened`: change in the number of
    open runs of its caller.
    """

    before: RunState | None
    after: RunState
    paid_usd: float
    opened: int

    @classmethod
    def of(cls, commit: Commit, before: RunState | None) -> Self:
        outcome = commit.outcome
        return cls(
            entry=commit.entry,
            event=outcome.event,
            facts=outcome.facts,
            before=before,
            after=commit.state,
            paid_usd=commit.paid_usd,
            opened=commit.opened,
        )

    @property
    def run_id(self) -> str:
        return self.entry.run_id

    @property
    def state_transition(self) -> str:
        """Such as `acting->thinking`; an ended run appears with its status."""
        return f"{_state_name(self.before)}->{_state_name(self.after)}"

    @cached_property
    def ended(self) -> bool:
        return RunEnded in self.kinds

    @cached_property
    def paused(self) -> bool:
        return PersonAsked in self.kinds


def _state_name(run: RunState | None) -> str:
    if run is None:
        return "none"
    return run.status.value if run.final else run.waiting.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCharge:
    """Effect of an entry on the limits of model calls: `tokens` and `usd` are reserved if `reserved`, else used.
    `hold_s`: wait that the provider asked for, with its reason.
    """

    reserved: bool
    tokens: int = 0
    usd: float = 0.0
    replied: bool = False
    hold_s: float | None = None
    why: str = ""


RecordedCall = tuple[datetime, str, CallCharge]
"""Instant of the call, run id, charge."""


@dataclass(frozen=True, slots=True)
class ReservedFunds:
    caller: str
    usd: float


RATE_ERRORS = frozenset({"rate_limit", "overloaded"})
"""Provider errors after which no run calls the model until the wait is over."""


def call_charge(event: Event) -> CallCharge | None:
    """None for an event that is no part of a model call."""
    match event:
        case CallReserved(reserve=reserve):
            return CallCharge(reserved=True, tokens=reserve.tokens, usd=reserve.cost_usd or 0.0)
        case ModelReplied(usage=usage):
            return CallCharge(reserved=False, tokens=usage.input_tokens + usage.output_tokens, replied=True)
        case ModelUnavailable(error_class=error_class, retry_after_s=hold_s, message=message):
            held = error_class in RATE_ERRORS and hold_s is not None
            return CallCharge(reserved=False, hold_s=hold_s if held else None, why=str(message)[:200] if held else "")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCommit:
    """Entry that another process committed. `position`: place in the journal of all runs. `by`: delivery or turn of the
    commit. `status`: the run's status after it. `size`: bytes of a caller's wake.
    """

    run_id: str
    seq: int
    position: int
    by: str
    status: Status
    caller: str
    paid_usd: float = 0.0
    opened: int = 0
    size: int = 0
    call: CallCharge | None = None


def replay(entries: Iterable[Entry]) -> Iterator[ChangeRecord]:
    """Decides each event of a journal again, from its first entry. Raises Damaged, and ValueError for an entry that
    cannot follow or leads to other facts.
    """
    before: RunState | None = None
    for entry in entries:
        event = entry.decoded()
        transition = _with_its_reserve(decide(before, event), entry)
        after, led_to = transition.state, transition.facts
        if after is None or transition.ignored or (after.run_id, after.version) != (entry.run_id, entry.seq):
            raise ValueError(f"entry {entry.seq} changes nothing by the rules of this version ({transition.ignored})")
        if entry.rules == RULES and facts_text(led_to) != entry.facts:
            raise ValueError(f"entry {entry.seq} leads to other facts than those that are stored with it")
        about: dict[str, Any] = {"paid_usd": paid_with(event, led_to), "opened": opened(before, after)}
        yield ChangeRecord(entry=entry, event=event, facts=led_to, before=before, after=after, **about)
        before = after


def _with_its_reserve(decided: Transition, entry: Entry) -> Transition:
    """Adds the stored reserve: whether a call could be made at once is not in the event."""
    led_to = entry.led_to() if CallAsked in decided.kinds else ()
    reserved = next((fact for fact in led_to if isinstance(fact, CallReserved)), None)
    return (with_reserve(decided, reserved) if reserved else None) or decided


def replayed_state(entries: Iterable[Entry]) -> RunState:
    """State of the run after all entries, which begin with its first. Raises as `replay`, and ValueError for no
    entries.
    """
    *_, last = replay(entries)
    return last.after
