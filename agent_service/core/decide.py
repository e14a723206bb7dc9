"""The one decision function: what a run does when something happens.

Every event that can change a run goes through `decide`. One that changes it counts one entry of its journal
(`version`); one that does not is ignored, with the reason. A final status stays; a late result is recorded once.
A reply counts only for the open call, a result only for a pending attempt, and a cancel ends every run that goes on.
TABLE says for each state and event who decides, and where that may lead; docs/ARCHITECTURE.md draws it.
"""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from agent_service.core import asking, limits, people, planning, results, thinking
from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    Event,
    ModelReplied,
    ModelUnavailable,
    Refusal,
    RunStarted,
    SignalReceived,
    StoodStill,
    TimerFired,
    ToolReturned,
    Transition,
    TurnBroke,
    WakeAccepted,
)
from agent_service.core.facts import Stands
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from agent_service.core.waiting import (
    Acting,
    Asking,
    Deciding,
    Ended,
    NeedsPerson,
    Queued,
    Sleeping,
    Status,
    Thinking,
    Waiting,
)
from agent_service.sentences import Text, say
from schemas.values import dataclass, replace

Decider = Callable[[Any, Any], RunState | Text | Refusal]
"""Gets the run, already counted one entry further. A text, or a refusal, says why the event is ignored."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an event does to a run in one state: who decides, and all states that it may lead to (none: ignored)."""

    decider: Decider
    to: tuple[type[Waiting], ...]


def decide(state: RunState | None, event: Event) -> Transition:
    rule = TABLE[type(state.waiting) if state else None][type(event)]
    led_to = rule.decider(replace(state, version=state.version + 1, updated_at=event.at) if state else None, event)
    if isinstance(led_to, Refusal):
        return Transition(state=state, event=event, ignored=led_to.why, refused=True)
    if not isinstance(led_to, RunState):
        return Transition(state=state, event=event, ignored=led_to)
    pending = led_to.pending
    stands = Stands(status=led_to.waiting.status, step=pending.step if pending else 0)
    return Transition(state=replace(led_to, happened=()), event=event, facts=(*led_to.happened, stands))


# Who decides


def _accept(_: None, event: WakeAccepted) -> RunState:
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


def _of_the_model(state: RunState, event: CallReserved | ModelReplied | ModelUnavailable) -> RunState | Text:
    asked = state.asking
    if asked is None or event.call != asked.call:
        return _not_asked(state, event)
    match event:
        case CallReserved():
            return asking.on_reserved(state, event)
        case ModelReplied():
            return thinking.on_reply(state, event)
        case ModelUnavailable():
            return asking.on_unavailable(state, event)


def _on_timer(state: RunState, event: TimerFired) -> RunState | Text:
    waiting, is_over = state.waiting, event.at >= state.over_at
    held = isinstance(waiting, Thinking) and waiting.still_since is not None and not is_over  # more may be spent now
    if not held and (state.due_at is None or event.at < state.due_at):
        return say("not_due")
    match waiting:
        case NeedsPerson():
            return people.on_expiry(state)
        case Thinking() if not is_over:
            return asking.put(limits.extend_deadline(state, waiting.still_since), waiting.asking)
        case Sleeping() if not is_over:
            return planning.wake_up(state)
        case Acting() if not is_over:
            return results.on_due(state)
    return _deadline(state)


def _deadline(state: RunState) -> RunState:
    past = limits.past_deadline(state.brief.limits)
    if isinstance(state.waiting, Queued):  # there is nothing yet that could be resumed
        return asking.escalate(state, *past)
    question = state.asking or Asking(call=state.calls + 1, phase=Phase.PLAN)
    return asking.out_of_budget(state, past, question=question)


# The table


def _never(why: str) -> Rule:
    return Rule(lambda _state, _event: say(why), ())


def _not_asked(_: RunState, event: CallReserved | ModelReplied | ModelUnavailable) -> Text:
    return say("call_not_awaited", call=event.call)


def _has_ended(state: RunState, _: Event) -> Text:
    return say("has_ended", status=state.status)


def _ends(status: Status, ending_class: str) -> Decider:
    return lambda state, event: asking.end(state, status, ending_class, event.reason)


def _went_on(state: type[Waiting]) -> Rule:
    return Rule(limits.on_stood_still, (state,))


_Row = Mapping[type[Event], Rule]

_ALIVE: _Row = {
    WakeAccepted: _never("accepted_already"),
    CancelRequested: Rule(_ends(Status.CANCELLED, "cancelled"), (Ended,)),
    TurnBroke: Rule(_ends(Status.FAILED, "internal"), (Ended,)),
}
_NOT_ASKING: _Row = dict.fromkeys((CallReserved, ModelReplied, ModelUnavailable), Rule(_not_asked, ()))
_BEGUN: _Row = {**_ALIVE, RunStarted: _never("started_already")}
_UNASKED = Rule(results.on_result, (Ended,))

TABLE: Mapping[type[Waiting] | None, _Row] = {
    None: {**dict.fromkeys(get_args(Event), _never("no_such_run")), WakeAccepted: Rule(_accept, (Queued,))},
    Queued: {
        **_ALIVE,
        **_NOT_ASKING,
        StoodStill: _went_on(Queued),
        RunStarted: Rule(_start, (Thinking, NeedsPerson, Ended)),
        ToolReturned: _UNASKED,
        TimerFired: Rule(_on_timer, (Ended,)),
        SignalReceived: Rule(people.hear, (Queued,)),
    },
    Thinking: {
        **_BEGUN,
        StoodStill: _went_on(Thinking),
        CallReserved: Rule(_of_the_model, (Thinking, NeedsPerson, Ended)),
        ModelReplied: Rule(_of_the_model, (Thinking, Acting, Sleeping, NeedsPerson, Ended)),
        ModelUnavailable: Rule(_of_the_model, (Thinking, NeedsPerson, Ended)),
        ToolReturned: _UNASKED,
        TimerFired: Rule(_on_timer, (Thinking, NeedsPerson, Ended)),
        SignalReceived: Rule(people.hear, (Thinking,)),
    },
    Acting: {
        **_BEGUN,
        **_NOT_ASKING,
        StoodStill: _went_on(Acting),
        ToolReturned: Rule(results.on_result, (Acting, Thinking, NeedsPerson, Ended)),
        TimerFired: Rule(_on_timer, (Acting, Thinking, NeedsPerson, Ended)),
        SignalReceived: Rule(people.hear, (Acting,)),
    },
    Sleeping: {
        **_BEGUN,
        **_NOT_ASKING,
        StoodStill: _went_on(Sleeping),
        ToolReturned: _UNASKED,
        TimerFired: Rule(_on_timer, (Thinking, NeedsPerson, Ended)),
        SignalReceived: Rule(people.hear, (Sleeping, Thinking, NeedsPerson, Ended)),
    },
    NeedsPerson: {
        **_BEGUN,
        **_NOT_ASKING,
        StoodStill: _went_on(NeedsPerson),
        ToolReturned: Rule(results.on_result, (NeedsPerson, Ended)),
        TimerFired: Rule(_on_timer, (Thinking, Acting, NeedsPerson, Ended)),
        SignalReceived: Rule(people.hear, (Thinking, Acting, NeedsPerson, Ended)),
    },
    Ended: {
        **dict.fromkeys(get_args(Event), Rule(_has_ended, ())),
        WakeAccepted: _never("accepted_already"),
        ToolReturned: Rule(results.on_result, (Ended,)),
        SignalReceived: Rule(people.hear, (Queued, Thinking, Acting, NeedsPerson)),
    },
}
