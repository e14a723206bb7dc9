"""Moments: the journal told again, each entry with the run as it was before and after. Pure.

A moment in which a model replied has a ruling for each decision in the reply: what became of it, and why. A fused reply
holds two decisions: a framing or a reflection, and a plan.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from agent_service.core.decide import decide
from agent_service.core.events import CallReserved, Event, ModelReplied
from agent_service.core.phases import Decision, Framing, Phase, Plan, Reflection, Refusal, Unusable, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import (
    Asking,
    ForModel,
    ForTool,
    ModelRetry,
    Pending,
    Status,
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
        return self.after.final and not (self.before and self.before.final)

    @property
    def paused(self) -> bool:
        return self.after.status is Status.PAUSED and self._status_before is not Status.PAUSED

    @property
    def resumed(self) -> bool:
        return self.after.status is Status.RUNNING and self._status_before is Status.PAUSED

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


RulingStatus = Literal["ok", "unusable", "refused", "ignored"]
"""`unusable`: no valid decision. `refused`: valid, and not carried out. `ignored`: a plan that came with an ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """One decision. `step` is the one planned or reflected upon; `attempt` counts how often it was asked for.

    `error_class` and `why` say why it was not taken up.
    """

    phase: Phase
    step: int
    attempt: int
    decision: Decision
    status: RulingStatus
    error_class: str | None = None
    why: str | None = None


def rulings(moment: Moment) -> tuple[Ruling, ...]:
    """The rulings of a moment in which the model replied; none of any other."""
    before, reply = moment.before, moment.event
    if before is None or before.asking is None or not isinstance(reply, ModelReplied):
        return ()
    first = _ruling(moment, before, reply.decision, before.asking.phase, attempt=before.asking.repairs + 1)
    if reply.plan is None:
        return (first,)
    if _goes_on(before.asking.phase, reply.decision):
        return first, _ruling(moment, before, reply.plan, Phase.PLAN, attempt=1)
    return first, Ruling(phase=Phase.PLAN, step=before.step + 1, attempt=1, decision=reply.plan, status="ignored")


def _goes_on(phase: Phase, decision: Decision) -> bool:
    """Whether the plan that came along with a decision is taken up."""
    match phase, decision:
        case Phase.FRAME, Framing() as framing:
            return not framing.flaws()
        case Phase.REFLECT, Reflection(verdict=Verdict.CONTINUE):
            return True
    return False


def _ruling(moment: Moment, before: RunState, decision: Decision, phase: Phase, *, attempt: int) -> Ruling:
    objection = _objection(moment, before, decision, phase)
    status: RulingStatus = "unusable" if isinstance(decision, Unusable) else "refused" if objection else "ok"
    error_class, why = objection or (None, None)
    return Ruling(
        phase=phase,
        step=before.step + (phase is Phase.PLAN),
        attempt=attempt,
        decision=decision,
        status=status,
        error_class=error_class,
        why=why,
    )


def _objection(moment: Moment, before: RunState, decision: Decision, phase: Phase) -> tuple[str, str] | None:
    """Why the decision was not taken up: class and reason."""
    after, asked = moment.after, moment.asked
    if after.refused_done > before.refused_done:
        return "done_refused", _told(after)
    if asked and asked.repairs and asked.phase is phase:
        return "invalid_decision", _told(after)
    stopped = moment.ended or moment.paused
    if stopped and (isinstance(decision, Plan | Refusal) or _not_taken_up(after, decision, phase)):
        return after.ending_class, after.reason
    return None


def _not_taken_up(after: RunState, decision: Decision, phase: Phase) -> bool:
    """Whether the run stopped because of this decision, not only after it."""
    reframe = isinstance(decision, Reflection) and decision.verdict is Verdict.REFRAME
    if reframe and after.ending_class == "budget_reframes":
        return True
    return after.ending_class == "invalid_decision" and not _goes_on(phase, decision)


def _told(after: RunState) -> str:
    """What the model was told, or, where it is not asked again, why the run stopped."""
    return "; ".join(after.asking.feedback) if after.asking else after.reason
