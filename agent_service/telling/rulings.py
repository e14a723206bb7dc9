"""Rulings: what became of each decision in a reply of the model, and why. Pure.

A fused reply holds two decisions: a framing or a reflection, and a plan.
"""

from dataclasses import dataclass
from typing import Literal

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Decision, Framing, Phase, Plan, Reflection, Refusal, Unusable, Verdict
from agent_service.core.state import RunState
from agent_service.moments import Moment

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
