"""How a run ends or pauses: exactly one final status, and the events that say so."""

from datetime import datetime
from typing import Any, Literal

from agent_service.core import proof
from agent_service.core.effects import AbandonCall, Effect, Publish, Transition, publish, tell
from agent_service.core.facts import CallLost, PersonAsked
from agent_service.core.facts import Ended as EndedFact
from agent_service.core.limits import budget_use, stood_still, with_lost, with_set_aside
from agent_service.core.people import petition
from agent_service.core.people.remedies import remedy
from agent_service.core.phases import Plan, Reflection
from agent_service.core.state import RunState, replace, with_facts
from agent_service.core.tools.attempts import Pending
from agent_service.core.waiting import (
    Acting,
    Approval,
    Asking,
    Ended,
    NeedsPerson,
    Planned,
    Reserve,
    Status,
    Stop,
    Thinking,
    acting_of,
    under_way,
)
from schemas import keys, subjects
from schemas.events import Cancelled, Completed, Escalated, Failed, ToolResult, Usage

ProgressPhase = Literal["accepted", "frame", "plan", "act", "reflect", "compact", "verify", "end"]


def progress(state: RunState, phase: ProgressPhase, summary: str, *, more: bool = False) -> Publish:
    payload = {
        "run_id": state.run_id,
        "seq": state.version,
        "phase": phase,
        "step": state.step,
        "status": state.status,
        "summary": summary,
        "definition_of_done": {"done": sum(i.done for i in state.done_items), "total": len(state.done_items)},
        "budget": budget_use(state),
        "trace_url": state.brief.trace_url,
    }
    return tell(subjects.PROGRESS, payload, keys.progress(state.run_id, state.version, phase if more else ""))


def after_progress(state: RunState, phase: ProgressPhase, summary: str, then: Transition) -> Transition:
    more = any(isinstance(effect, Publish) and effect.subject == subjects.PROGRESS for effect in then.effects)
    return replace(then, effects=(progress(state, phase, summary, more=more), *then.effects))


def complete(state: RunState, outcome: str, at: datetime) -> Transition:
    return _final(state, Status.DONE, "completed", outcome, at=at)


def complete_as_claimed(state: RunState, claim: Reflection, at: datetime) -> Transition:
    return complete(replace(state, claim=None), claim.outcome or claim.summary, at)


def escalate(
    state: RunState, ending_class: str, reason: str, *, at: datetime, came: tuple[ToolResult, ...] = ()
) -> Transition:
    return _final(state, Status.ESCALATED, ending_class, reason, at=at, came=came)


def fail(state: RunState, ending_class: str, reason: str, *, at: datetime) -> Transition:
    return _final(state, Status.FAILED, ending_class, reason, at=at)


def cancel(state: RunState, reason: str, *, at: datetime) -> Transition:
    return _final(state, Status.CANCELLED, "cancelled", reason, at=at)


def out_of_budget(state: RunState, budget: tuple[str, str], *, at: datetime, question: Asking) -> Transition:
    """End, or pause before `question`, by the run's `on_budget` rule."""
    ending_class, reason = budget
    if state.claim:
        return complete_as_claimed(state, state.claim, at)
    if state.brief.limits.on_budget == "escalate":
        return escalate(state, ending_class, reason, at=at)
    return pause(state, ending_class, f"{reason}; raise the budget to go on", at=at, question=question)


def pause(state: RunState, ending_class: str, reason: str, *, at: datetime, question: Asking) -> Transition:
    """Wait for a person. On resume the open call is made again, the pending result waited for, or `question` asked."""
    state = with_lost_call(state)
    match state.waiting:
        case Thinking() | Acting() | Planned() as held:
            calls = state.calls
        case _:
            held, calls = Thinking(asking=question), question.call
    stop = _stop(state, ending_class, reason)
    waiting = NeedsPerson(ask=stop, since=at, entry=stop.entry, held=held)
    paused = replace(state, waiting=waiting, calls=calls, summary=reason, updated_at=at)
    paused = with_facts(paused, PersonAsked(ask=stop))
    return Transition(
        state=paused,
        effects=(
            *_abandoned(state),
            progress(paused, question.phase.value, reason),
            ending(paused),
            *petition.said(paused),
        ),
    )


def with_lost_call(state: RunState) -> RunState:
    match state.waiting:
        case Thinking(reserve=Reserve() as reserve, asking=asking) as waiting:
            tokens, cost = reserve.if_lost or (reserve.tokens, reserve.cost_usd)
            lost = replace(state, spent=with_lost(state.spent, reserve), waiting=replace(waiting, reserve=None))
            return with_facts(lost, CallLost(call=asking.call, tokens=tokens, cost_usd=cost))
    return state


def ending(state: RunState) -> Publish:
    match state.status:
        case Status.DONE:
            return publish(subjects.COMPLETED, _completed(state), keys.completed(state.run_id))
        case Status.FAILED:
            return publish(subjects.FAILED, Failed(**_not_completed(state)), keys.failed(state.run_id))
        case Status.CANCELLED:
            return publish(subjects.CANCELLED, Cancelled(**_not_completed(state)), keys.cancelled(state.run_id))
        case _:
            payload = Escalated(**_not_completed(state), resumable=state.status is Status.PAUSED)
            return publish(
                subjects.ESCALATED, payload, keys.escalated(state.run_id, state.stop.entry if state.stop else 0)
            )


def _final(
    state: RunState,
    status: Status,
    ending_class: str,
    reason: str,
    *,
    at: datetime,
    came: tuple[ToolResult, ...] = (),
) -> Transition:
    state = with_lost_call(state)
    stop = _stop(state, ending_class, reason)
    held = _kept(state) if status is Status.ESCALATED else None
    if status is Status.ESCALATED:  # an answer finds the time that it had when it began to wait for people
        since = state.waiting.since if isinstance(state.waiting, NeedsPerson) else None
        state = stood_still(state, since, at)
    waiting = Ended(status=status, stop=stop, at=at, held=held, came=came, out=_out(state, came))
    ended = replace(state, waiting=waiting, summary=reason, updated_at=at)
    told = EndedFact(status=status, ending_class=ending_class, reason=reason, steps=state.step, spent=state.spent)
    said = (progress(ended, "end", reason), ending(ended), *petition.said(ended))
    return Transition(state=with_facts(ended, told), effects=(*_abandoned(state), *said))


def _out(state: RunState, came: tuple[ToolResult, ...]) -> tuple[Pending, ...]:
    sent = (flight.pending for flight in acting_of(state.waiting).flights if flight.retry_at is None)
    known = {(r.step, r.task or "", r.round or 0) for r in came if not r.error or r.error.error_class != "in_doubt"}
    return tuple(pending for pending in sent if pending.name not in known)


def _kept(state: RunState) -> Acting | Planned | None:
    match under_way(state.waiting):
        case Acting() | Planned() as held:
            return held
        case NeedsPerson(ask=Approval(proposal=Plan() as plan)):
            return Planned(plan=plan)
    return None


def _abandoned(state: RunState) -> tuple[Effect, ...]:
    return (AbandonCall(call=state.asking.call),) if state.asking else ()


def _completed(state: RunState) -> Completed:
    return Completed(
        run_id=state.run_id,
        goal=state.brief.goal,
        outcome=state.outcome,
        steps_taken=state.step,
        artifacts=state.artifacts,
        definition_of_done=tuple(map(proof.told, state.done_items)),
        usage=_usage(state),
        started_at=state.started_at,
        completed_at=state.ended_at,
        trace_url=state.brief.trace_url,
        has_callback=state.brief.callback is not None,
    )


def _not_completed(state: RunState) -> dict[str, Any]:
    return {
        "run_id": state.run_id,
        "goal": state.brief.goal,
        "reason": _with_remedy(state),
        "ending_class": state.ending_class,
        "step": state.step,
        "usage": _usage(state),
        "trace_url": state.brief.trace_url,
        "has_callback": state.brief.callback is not None,
    }


def _with_remedy(state: RunState) -> str:
    now = remedy(state) if state.ending_class == "in_doubt" else None
    return f"{state.reason.rstrip('.')}. What to do now: {now}" if now else state.reason


def _stop(state: RunState, ending_class: str, reason: str) -> Stop:
    return Stop(ending_class=ending_class, reason=reason, entry=state.version, spent=with_set_aside(state))


def _usage(state: RunState) -> Usage:
    assert state.stop, "it has ended, or paused"
    return Usage(tokens=state.stop.spent.tokens, cost_usd=state.stop.spent.cost_usd)
