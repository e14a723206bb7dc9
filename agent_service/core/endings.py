"""How a run ends or pauses: exactly one final status, and the events that say so."""

from agent_service.core.facts import CallLost, PersonAsked
from agent_service.core.facts import Ended as EndedFact
from agent_service.core.limits import expires_at, extend_deadline, with_cost_of_lost, with_set_aside
from agent_service.core.phases import Plan, Reflection
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import (
    Acting,
    Approval,
    Asking,
    Ended,
    Held,
    NeedsPerson,
    Pending,
    Planned,
    Question,
    Reserve,
    Status,
    Stop,
    Thinking,
    under_way,
)
from agent_service.sentences import Text, say
from schemas.events import ToolResult
from schemas.values import replace


def complete(state: RunState, outcome: Text) -> RunState:
    return _final(state, Status.DONE, "completed", outcome)


def complete_as_claimed(state: RunState, claim: Reflection) -> RunState:
    return complete(replace(state, claim=None), claim.outcome or claim.summary)


def escalate(state: RunState, ending_class: str, reason: Text, *, came: tuple[ToolResult, ...] = ()) -> RunState:
    return _final(state, Status.ESCALATED, ending_class, reason, came=came)


def fail(state: RunState, ending_class: str, reason: Text) -> RunState:
    return _final(state, Status.FAILED, ending_class, reason)


def cancel(state: RunState, reason: Text) -> RunState:
    return _final(state, Status.CANCELLED, "cancelled", reason)


def out_of_budget(state: RunState, budget: tuple[str, Text], *, question: Asking) -> RunState:
    """End, or pause before `question`, by the run's `on_budget` rule."""
    ending_class, reason = budget
    if state.claim:
        return complete_as_claimed(state, state.claim)
    if state.brief.limits.on_budget == "escalate":
        return escalate(state, ending_class, reason)
    return pause(state, ending_class, say("raise_to_go_on", reason=reason), question=question)


def pause(state: RunState, ending_class: str, reason: Text, *, question: Asking) -> RunState:
    """Wait for a person. On resume the open call is made again, the pending result waited for, or `question` asked."""
    state = with_lost_call(state)
    match state.waiting:
        case Thinking() | Acting() | Planned() as held:
            calls = state.calls
        case _:
            held, calls = Thinking(asking=question), question.call
    return ask_person(replace(state, calls=calls), _stop(state, ending_class, reason), reason, held=held)


def ask_person(
    state: RunState,
    ask: Approval | Question | Stop,
    summary: Text,
    *,
    patience_s: float | None = None,
    held: Held | None = None,
) -> RunState:
    """`patience_s`: how long the run waits, unless its deadline is earlier; null for a stop, which has no timer."""
    since = state.updated_at
    until = None if patience_s is None else expires_at(state.brief.limits, since, patience_s)
    waiting = NeedsPerson(ask=ask, since=since, entry=state.version, expires_at=until, held=held)
    return with_facts(replace(state, waiting=waiting, summary=summary), PersonAsked(ask=ask, expires_at=until))


def with_lost_call(state: RunState) -> RunState:
    match state.waiting:
        case Thinking(reserve=Reserve() as reserve, asking=asking) as waiting:
            tokens, cost = reserve.lost
            spent = with_cost_of_lost(state.spent, tokens, cost)
            lost = replace(state, spent=spent, waiting=replace(waiting, reserve=None))
            return with_facts(lost, CallLost(call=asking.call, tokens=tokens, cost_usd=cost))
    return state


def _final(
    state: RunState, status: Status, ending_class: str, reason: Text, *, came: tuple[ToolResult, ...] = ()
) -> RunState:
    state = with_lost_call(state)
    stop = _stop(state, ending_class, reason)
    held = _kept(state) if status is Status.ESCALATED else None
    if status is Status.ESCALATED:  # an answer finds the time that it had when it began to wait for people
        since = state.waiting.since if isinstance(state.waiting, NeedsPerson) else None
        state = extend_deadline(state, since)
    waiting = Ended(status=status, stop=stop, at=state.updated_at, held=held, came=came, out=_out(state, came))
    ended = replace(state, waiting=waiting, summary=reason)
    told = EndedFact(status=status, ending_class=ending_class, reason=reason, steps=state.step, spent=state.spent)
    return with_facts(ended, told)


def _out(state: RunState, came: tuple[ToolResult, ...]) -> tuple[Pending, ...]:
    sent = state.sent
    known = {(r.step, r.task or "", r.round or 0) for r in came if not r.error or r.error.error_class != "in_doubt"}
    return tuple(pending for pending in sent if pending.name not in known)


def _kept(state: RunState) -> Acting | Planned | None:
    match under_way(state.waiting):
        case Acting() | Planned() as held:
            return held
        case NeedsPerson(ask=Approval(proposal=Plan() as plan)):
            return Planned(plan=plan)
    return None


def _stop(state: RunState, ending_class: str, reason: Text) -> Stop:
    return Stop(ending_class=ending_class, reason=reason, entry=state.version, spent=with_set_aside(state))
