"""What became of each decision in a reply: taken up, refused with the reason, or passed over."""

from agent_service.core.events import ModelReplied
from agent_service.core.facts import Decided, DecisionStatus
from agent_service.core.phases import Decision, Framing, Phase, Plan, Reflection, Refusal, Unusable, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking

NEWER = "a person said something newer"


def outrun(before: RunState, asking: Asking, reply: ModelReplied) -> tuple[Decided, ...]:
    first = Decided(
        phase=asking.phase, step=_step(before, asking.phase), attempt=asking.repairs + 1, status="outrun", why=NEWER
    )
    return first, *_along(before, reply, "outrun", NEWER)


def decided(before: RunState, asking: Asking, reply: ModelReplied, after: RunState) -> tuple[Decided, ...]:
    """`after` is the run once the reply was taken up."""
    first = _one(before, after, reply.decision, asking.phase, attempt=asking.repairs + 1)
    if reply.plan is None:
        return (first,)
    if not _goes_on(after, reply.decision, asking.phase):
        return first, *_along(before, reply, "ignored")
    along = _one(before, after, reply.plan, Phase.PLAN, attempt=1, along=True)
    return first, along


def _along(before: RunState, reply: ModelReplied, status: DecisionStatus, why: str = "") -> tuple[Decided, ...]:
    if reply.plan is None:
        return ()
    step = _step(before, Phase.PLAN)
    return (Decided(phase=Phase.PLAN, step=step, attempt=1, status=status, along=True, why=why),)


def _step(before: RunState, phase: Phase) -> int:
    return before.step + (phase is Phase.PLAN)


def _one(
    before: RunState, after: RunState, decision: Decision, phase: Phase, *, attempt: int, along: bool = False
) -> Decided:
    error_class, why = _objection(before, after, decision, phase) or ("", "")
    refused: DecisionStatus = "refused" if error_class else "ok"
    return Decided(
        phase=phase,
        step=_step(before, phase),
        attempt=attempt,
        status="unusable" if isinstance(decision, Unusable) else refused,
        along=along,
        error_class=error_class,
        why=why,
    )


def _goes_on(after: RunState, decision: Decision, phase: Phase) -> bool:
    match phase, decision:
        case Phase.FRAME, Framing():
            return after.framing == decision
        case Phase.REFLECT | Phase.COMPACT, Reflection(verdict=Verdict.CONTINUE):
            return True
    return False


def _objection(before: RunState, after: RunState, decision: Decision, phase: Phase) -> tuple[str, str] | None:
    asked = after.calling
    if after.refused_done > before.refused_done:
        return "done_refused", _told(after)
    if asked and asked.repairs and asked.phase is phase:
        return "invalid_decision", "; ".join(asked.flaws) or _told(after)
    if after.stop and (isinstance(decision, Plan | Refusal) or _is_stopped_by(after, decision, phase)):
        return after.ending_class, after.reason
    return None


def _is_stopped_by(after: RunState, decision: Decision, phase: Phase) -> bool:
    reframe = isinstance(decision, Reflection) and decision.verdict is Verdict.REFRAME
    if reframe and after.ending_class == "budget_reframes":
        return True
    return after.ending_class == "invalid_decision" and not _goes_on(after, decision, phase)


def _told(after: RunState) -> str:
    return "; ".join(after.asking.told) if after.asking else after.reason
