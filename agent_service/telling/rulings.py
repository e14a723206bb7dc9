"""What became of each decision in a reply of the model, and why."""

from dataclasses import dataclass, replace
from typing import Literal

from agent_service.core.events import ModelReplied
from agent_service.core.model.thinking import outrun
from agent_service.core.phases import Decision, Framing, Phase, Plan, Reflection, Refusal, Unusable, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking
from agent_service.run.moments import Moment

RulingStatus = Literal["ok", "unusable", "refused", "ignored", "outrun"]
"""`ignored`: came along with a decision that led elsewhere. `outrun`: a person said something newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """`step` is planned or reflected upon; `attempt` counts how often it was asked for."""

    phase: Phase
    step: int
    attempt: int
    decision: Decision
    status: RulingStatus
    error_class: str | None = None
    why: str | None = None


def rulings(moment: Moment) -> tuple[Ruling, ...]:
    before, reply = moment.before, moment.event
    if before is None or before.asking is None or not isinstance(reply, ModelReplied):
        return ()
    if outrun(before, reply):
        return _outrun(before, before.asking, reply)
    first = _ruling(moment, before, reply.decision, before.asking.phase, attempt=before.asking.repairs + 1)
    if reply.plan is None:
        return (first,)
    if _goes_on(moment, reply.decision, before.asking.phase):
        return first, _ruling(moment, before, reply.plan, Phase.PLAN, attempt=1)
    return first, Ruling(phase=Phase.PLAN, step=before.step + 1, attempt=1, decision=reply.plan, status="ignored")


def _outrun(before: RunState, asking: Asking, reply: ModelReplied) -> tuple[Ruling, ...]:
    attempt, why = asking.repairs + 1, "a person said something newer"
    first = Ruling(
        phase=asking.phase,
        step=before.step + (asking.phase is Phase.PLAN),
        attempt=attempt,
        decision=reply.decision,
        status="outrun",
        why=why,
    )
    if reply.plan is None:
        return (first,)
    return first, replace(first, phase=Phase.PLAN, step=before.step + 1, attempt=1, decision=reply.plan)


def _goes_on(moment: Moment, decision: Decision, phase: Phase) -> bool:
    match phase, decision:
        case Phase.FRAME, Framing():
            return moment.after.framing == decision
        case Phase.REFLECT | Phase.COMPACT, Reflection(verdict=Verdict.CONTINUE):
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
    after, asked = moment.after, moment.asked
    if after.refused_done > before.refused_done:
        return "done_refused", _told(after)
    if asked and asked.repairs and asked.phase is phase:
        return "invalid_decision", "; ".join(asked.flaws) or _told(after)
    stopped = moment.ended or (moment.paused and after.stop is not None)
    if stopped and (isinstance(decision, Plan | Refusal) or _not_taken_up(moment, decision, phase)):
        return after.ending_class, after.reason
    return None


def _not_taken_up(moment: Moment, decision: Decision, phase: Phase) -> bool:
    """Whether the run stopped because of this decision."""
    stopped_for = moment.after.ending_class
    reframe = isinstance(decision, Reflection) and decision.verdict is Verdict.REFRAME
    if reframe and stopped_for == "budget_reframes":
        return True
    return stopped_for == "invalid_decision" and not _goes_on(moment, decision, phase)


def _told(after: RunState) -> str:
    return "; ".join(after.asking.told) if after.asking else after.reason
