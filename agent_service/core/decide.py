"""The one decision function: leads a run and an event to the next state and its facts.

Every event that can change a run goes through `decide`. One that changes it is one journal entry (`version`); any other
is ignored, with the reason. A final status stays; a late result is recorded once. A reply counts only for the open
call, a result only for a pending attempt, and a cancel ends every run that has not ended. docs/ARCHITECTURE.md draws
TABLE.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent_service.core import asking, limits, people, planning, results, thinking
from agent_service.core.events import (
    CancelRequested,
    Denied,
    Event,
    ModelReplied,
    ModelUnavailable,
    RunStarted,
    SignalReceived,
    StoodStill,
    TimerFired,
    ToolReturned,
    Transition,
    TurnBroke,
    WakeAccepted,
)
from agent_service.core.facts import CallReserved, RunStanding
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from agent_service.core.waiting import (
    Acting,
    Deciding,
    Ended,
    NeedsPerson,
    OpenCall,
    Queued,
    Sleeping,
    Status,
    Thinking,
    Waiting,
)
from agent_service.sentences import Text, say
from schemas.values import replace

Decider = Callable[[Any, Any], RunState | Text | Denied]
"""Gets the state with the new `version`. A text, or `Denied`, is the reason to ignore the event."""


def decide(state: RunState | None, event: Event) -> Transition:
    led_to: RunState | Text | Denied
    if state is None:
        led_to = _accept(event) if isinstance(event, WakeAccepted) else say("no_such_run")
    elif type(event) in TABLE[type(state.waiting)]:
        led_to = DECIDERS[type(event)](replace(state, version=state.version + 1, updated_at=event.at), event)
    else:
        led_to = _why_ignored(state, event)
    if isinstance(led_to, Denied):
        return Transition(state=state, event=event, ignored=led_to.why, refused=True)
    if not isinstance(led_to, RunState):
        return Transition(state=state, event=event, ignored=led_to)
    pending = led_to.pending
    stands = RunStanding(status=led_to.waiting.status, step=pending.step if pending else 0)
    return Transition(state=replace(led_to, happened=()), event=event, facts=(*led_to.happened, stands))


def _why_ignored(state: RunState, event: Event) -> Text:
    if isinstance(event, CallReserved | ModelReplied | ModelUnavailable) and not state.final:
        return say("call_not_awaited", call=event.call)
    if isinstance(event, WakeAccepted):
        return say("accepted_already")
    return say("has_ended", status=state.status) if state.final else say("started_already")


def with_reserve(transition: Transition, reserved: CallReserved) -> Transition | None:
    """Adds the reserve of the model call that it asks for; None if the reserve could break a budget."""
    state, (*facts, stands) = transition.state, transition.facts
    if state is None or not isinstance(state.waiting, Thinking):
        return None
    if limits.reached_before_a_call(state, reserved.reserve):
        return None
    asked = replace(state, waiting=replace(state.waiting, reserve=reserved.reserve))
    return Transition(state=asked, event=transition.event, facts=(*facts, reserved, stands))


def _accept(event: WakeAccepted) -> RunState:
    return RunState(
        run_id=event.run_id,
        wake_id=event.wake_id,
        brief=event.brief,
        waiting=Queued(),
        version=1,
        accepted_at=event.at,
        updated_at=event.at,
        tainted_by=say("the_request") if event.brief.untrusted else "",
        doubts=event.doubts,
        rulings=event.refused,
        summary=say("accepted"),
    )


def _start(state: RunState, event: RunStarted) -> RunState:
    brief = replace(state.brief, skills=event.skills)
    started = replace(state, waiting=Deciding(), brief=brief, started_at=event.at)
    return asking.ask(started, Phase.FRAME)


def _of_its_call(decider: Callable[[RunState, OpenCall, Any], RunState]) -> Decider:
    def decided(state: RunState, event: CallReserved | ModelReplied | ModelUnavailable) -> RunState | Text | Denied:
        call = state.open_call
        return decider(state, call, event) if call and event.call == call.call else _why_ignored(state, event)

    return decided


def _on_timer(state: RunState, event: TimerFired) -> RunState | Text:
    waiting, is_over = state.waiting, event.at >= state.effective_deadline
    held = isinstance(waiting, Thinking) and waiting.still_since is not None and not is_over  # spending may go on now
    if not held and (state.due_at is None or event.at < state.due_at):
        return say("not_due")
    match waiting:
        case NeedsPerson():
            return people.on_expiry(state)
        case Thinking() if not is_over:
            return asking.begin_call(limits.extend_deadline(state, waiting.still_since), waiting.asking)
        case Sleeping() if not is_over:
            return planning.wake_up(state)
        case Acting() if not is_over:
            return results.on_due(state)
    past = limits.deadline_reached(state.brief.limits)
    if isinstance(waiting, Queued):  # nothing has begun that could be resumed
        return asking.escalate(state, *past)
    question = state.open_call or OpenCall(call=state.calls + 1, phase=Phase.PLAN)
    return asking.out_of_budget(state, past, question=question)


def _ends(status: Status, ending_class: str) -> Decider:
    return lambda state, event: asking.end(state, status, ending_class, event.reason)


DECIDERS: Mapping[type[Event], Decider] = {
    RunStarted: _start,
    CallReserved: _of_its_call(asking.on_reserved),
    ModelReplied: _of_its_call(thinking.on_reply),
    ModelUnavailable: _of_its_call(asking.on_unavailable),
    ToolReturned: results.on_result,
    SignalReceived: people.on_signal,
    TimerFired: _on_timer,
    StoodStill: limits.on_stood_still,
    CancelRequested: _ends(Status.CANCELLED, "cancelled"),
    TurnBroke: _ends(Status.FAILED, "internal"),
}
_ALIVE: Mapping[type[Event], tuple[type[Waiting], ...]] = {CancelRequested: (Ended,), TurnBroke: (Ended,)}
TABLE: Mapping[type[Waiting] | None, Mapping[type[Event], tuple[type[Waiting], ...]]] = {
    None: {WakeAccepted: (Queued,)},
    Queued: {
        **_ALIVE,
        StoodStill: (Queued,),
        RunStarted: (Thinking, NeedsPerson, Ended),
        ToolReturned: (Ended,),
        TimerFired: (Ended,),
        SignalReceived: (Queued,),
    },
    Thinking: {
        **_ALIVE,
        StoodStill: (Thinking,),
        CallReserved: (Thinking, NeedsPerson, Ended),
        ModelReplied: (Thinking, Acting, Sleeping, NeedsPerson, Ended),
        ModelUnavailable: (Thinking, NeedsPerson, Ended),
        ToolReturned: (Ended,),
        TimerFired: (Thinking, NeedsPerson, Ended),
        SignalReceived: (Thinking,),
    },
    Acting: {
        **_ALIVE,
        StoodStill: (Acting,),
        ToolReturned: (Acting, Thinking, NeedsPerson, Ended),
        TimerFired: (Acting, Thinking, NeedsPerson, Ended),
        SignalReceived: (Acting,),
    },
    Sleeping: {
        **_ALIVE,
        StoodStill: (Sleeping,),
        ToolReturned: (Ended,),
        TimerFired: (Thinking, NeedsPerson, Ended),
        SignalReceived: (Sleeping, Thinking, NeedsPerson, Ended),
    },
    NeedsPerson: {
        **_ALIVE,
        StoodStill: (NeedsPerson,),
        ToolReturned: (NeedsPerson, Ended),
        TimerFired: (Thinking, Acting, NeedsPerson, Ended),
        SignalReceived: (Thinking, Acting, NeedsPerson, Ended),
    },
    Ended: {ToolReturned: (Ended,), SignalReceived: (Queued, Thinking, Acting, NeedsPerson)},
}
"""The states that an event may lead to, by state and event; an event without an entry is ignored."""
