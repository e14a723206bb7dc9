"""The one decision function: leads a run and an event to the next state and its facts.

Every event that can change a run goes through `decide`. One that changes it is one journal entry (`version`); any other
is ignored, with the reason. A final status stays; a late result is recorded once. A reply counts only for the open
call, a result only for a pending attempt, and a cancel ends every run that has not ended. docs/ARCHITECTURE.md draws
TABLE.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent_service.core import asking, events, limits, people, planning, results, thinking
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

Decider = Callable[[Any, Any], RunState | Text | results.Unasked]
"""Gets the state with the new `version`. A text, or an answer that is denied, is the reason to ignore the event."""


def decide(state: RunState | None, event: events.Event) -> events.Transition:
    decider, targets = TABLE[type(event)]
    if (type(state.waiting) if state else None) in targets:
        led_to = decider(state and replace(state, version=state.version + 1, updated_at=event.at), event)
    else:
        led_to = _why_ignored(state, event)
    if isinstance(led_to, results.Unasked):
        return events.Transition(state=state, event=event, ignored=led_to.why, refused=led_to.denied)
    if not isinstance(led_to, RunState):
        return events.Transition(state=state, event=event, ignored=led_to)
    pending = led_to.pending
    stands = RunStanding(status=led_to.waiting.status, step=pending.step if pending else 0)
    return events.Transition(state=replace(led_to, happened=()), event=event, facts=(*led_to.happened, stands))


def _why_ignored(state: RunState | None, event: events.Event) -> Text:
    if state is None:
        return say("no_such_run")
    if isinstance(event, CallReserved | events.ModelReplied | events.ModelUnavailable) and not state.final:
        return say("call_not_awaited", call=event.call)
    if isinstance(event, events.WakeAccepted):
        return say("accepted_already")
    return say("has_ended", status=state.status) if state.final else say("started_already")


def with_reserve(transition: events.Transition, reserved: CallReserved) -> events.Transition | None:
    """Adds the reserve of the model call that it asks for; None if the reserve could break a budget."""
    state, (*facts, stands) = transition.state, transition.facts
    if state is None or not isinstance(state.waiting, Thinking):
        return None
    if limits.reached_before_a_call(state, reserved.reserve):
        return None
    asked = replace(state, waiting=replace(state.waiting, reserve=reserved.reserve))
    return events.Transition(state=asked, event=transition.event, facts=(*facts, reserved, stands))


def _accept(_: None, event: events.WakeAccepted) -> RunState:
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


def _start(state: RunState, event: events.RunStarted) -> RunState:
    brief = replace(state.brief, skills=event.skills)
    started = replace(state, waiting=Deciding(), brief=brief, started_at=event.at)
    return asking.ask(started, Phase.FRAME)


def _of_its_call(decider: Callable[[RunState, OpenCall, Any], RunState]) -> Decider:
    def decided(state: RunState, event: Any) -> RunState | Text:
        call = state.open_call
        return decider(state, call, event) if call and event.call == call.call else _why_ignored(state, event)

    return decided


def _on_timer(state: RunState, event: events.TimerFired) -> RunState | Text:
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
    return asking.out_of_budget(state, past)


def _ends(status: Status, ending_class: str) -> Decider:
    return lambda state, event: asking.end(state, status, ending_class, event.reason)


_ALIVE = (Queued, Thinking, Acting, Sleeping, NeedsPerson)
Targets = Mapping[type[Waiting] | None, tuple[type[Waiting], ...]]
_ENDS: Targets = dict.fromkeys(_ALIVE, (Ended,))
_CALLS: Targets = {Thinking: (Thinking, NeedsPerson, Ended)}
TABLE: Mapping[type[events.Event], tuple[Decider, Targets]] = {
    events.WakeAccepted: (_accept, {None: (Queued,)}),
    events.RunStarted: (_start, {Queued: (Thinking, NeedsPerson, Ended)}),
    events.ToolReturned: (
        results.on_result,
        {**_ENDS, Acting: (Acting, Thinking, NeedsPerson, Ended), NeedsPerson: (NeedsPerson, Ended), Ended: (Ended,)},
    ),
    CallReserved: (_of_its_call(asking.on_reserved), _CALLS),
    events.ModelReplied: (
        _of_its_call(thinking.on_reply),
        {Thinking: (Thinking, Acting, Sleeping, NeedsPerson, Ended)},
    ),
    events.ModelUnavailable: (_of_its_call(asking.on_unavailable), _CALLS),
    events.CancelRequested: (_ends(Status.CANCELLED, "cancelled"), _ENDS),
    events.SignalReceived: (
        people.on_signal,
        {
            **{kind: (kind,) for kind in (Queued, Thinking, Acting)},
            Sleeping: (Sleeping, Thinking, NeedsPerson, Ended),
            NeedsPerson: (Thinking, Acting, NeedsPerson, Ended),
            Ended: (Queued, Thinking, Acting, NeedsPerson),
        },
    ),
    events.TimerFired: (
        _on_timer,
        {
            Queued: (Ended,),
            Thinking: (Thinking, NeedsPerson, Ended),
            Acting: (Acting, Thinking, NeedsPerson, Ended),
            Sleeping: (Thinking, NeedsPerson, Ended),
            NeedsPerson: (Thinking, Acting, NeedsPerson, Ended),
        },
    ),
    events.TurnBroke: (_ends(Status.FAILED, "internal"), _ENDS),
    events.StoodStill: (limits.on_stood_still, {kind: (kind,) for kind in _ALIVE}),
}
"""Who decides an event, and where it may lead, by the state before. It is ignored in any other state."""
