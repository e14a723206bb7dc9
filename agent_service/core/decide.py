"""The one decision function: what a run does when something happens.

Rule 1: everything that can change a run is an event, and every event goes through `decide`.
Rule 2: an event that changes the run counts one entry of its journal (`version`); one that does not returns the same
        state, no effects, and the reason why it was ignored.
Rule 3: after a final status nothing changes any more, but a late result is recorded once.
Rule 4: a reply counts only for the call the run asks for; a result only for the attempt that is pending.
Rule 5: a cancel ends a run in every state that is not final.

Model calls are in `asking`, decisions in `thinking`, tools in `acting`, endings in `endings`; `correlate` says what a
result relates to.
"""

from datetime import datetime
from typing import assert_never

from agent_service.core import acting, asking, endings, limits, notes, thinking
from agent_service.core.announcing import announcement
from agent_service.core.correlate import Relation, judge
from agent_service.core.effects import Effect, Transition, publish
from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    Event,
    ModelReplied,
    ModelUnavailable,
    RunStarted,
    SignalReceived,
    TimerFired,
    ToolReturned,
    TurnBroke,
    WakeAccepted,
)
from agent_service.core.phases import Phase
from agent_service.core.replacing import replace
from agent_service.core.state import Brief, RunState
from agent_service.core.waiting import Deciding, ForPerson, ForTool, Pending, Queued, Status, ToolRetry, then
from schemas import events as wire
from schemas import keys, subjects

MAX_SIGNALS = 200
_IN_DOUBT = {"error_class": "in_doubt", "retryable": False}

ModelEvent = CallReserved | ModelReplied | ModelUnavailable
LiveEvent = RunStarted | ModelEvent | CancelRequested | SignalReceived | TimerFired | TurnBroke
"""What only a run that has not ended takes notice of."""


def decide(state: RunState | None, event: Event) -> Transition:
    """What `event` does to a run; `state` is None for a run that is not known yet."""
    if isinstance(event, WakeAccepted):
        return Transition(state=state, ignored="accepted already") if state else _on_accepted(event)
    if state is None:
        return Transition(state=None, ignored="no such run")
    if isinstance(event, ToolReturned):
        return _on_result(state, event)
    return _ignored(state, f"the run has ended ({state.status})") if state.final else _on_live(state, event)


def _on_live(state: RunState, event: LiveEvent) -> Transition:
    match event:
        case RunStarted():
            return _on_started(state, event)
        case CallReserved() | ModelReplied() | ModelUnavailable():
            return _on_model(state, event)
        case CancelRequested():
            return endings.cancel(_next(state), event.reason, at=event.at)
        case SignalReceived():
            return _on_signal(state, event)
        case TimerFired():
            return _on_timer(state, event.at)
        case TurnBroke():
            return endings.fail(_next(state), "internal", event.reason, at=event.at)
    assert_never(event)


def _next(state: RunState) -> RunState:
    return replace(state, version=state.version + 1)


def _ignored(state: RunState, why: str) -> Transition:
    return Transition(state=state, ignored=why)


def _on_accepted(event: WakeAccepted) -> Transition:
    brief = Brief(
        goal=event.goal,
        context=event.context,
        limits=event.limits,
        fused=event.fused,
        depth=event.depth,
        callback=event.callback,
        announced=event.announce,
        trace_url=event.trace_url,
    )
    state = RunState(
        run_id=event.run_id,
        wake_id=event.wake_id,
        brief=brief,
        waiting=Queued(),
        version=1,
        accepted_at=event.at,
        updated_at=event.at,
        summary="accepted",
    )
    accepted = wire.WakeAccepted(run_id=event.run_id, wake_id=event.wake_id, accepted_at=event.at)
    effects: list[Effect] = [publish(subjects.WAKE_ACCEPTED, accepted, keys.accepted(event.run_id), rebuildable=True)]
    if event.announce:
        effects.append(announcement(state))
    return Transition(state=state, effects=tuple(effects))


def _on_started(state: RunState, event: RunStarted) -> Transition:
    if state.status is not Status.QUEUED:
        return _ignored(state, "started already")
    started = replace(
        _next(state),
        waiting=Deciding(),
        brief=replace(state.brief, skills=event.skills),
        started_at=event.at,
        updated_at=event.at,
    )
    return asking.ask(started, Phase.FRAME, at=event.at)


def _on_model(state: RunState, event: ModelEvent) -> Transition:
    if state.asking is None or event.call != state.asking.call:
        return _ignored(state, f"model call {event.call} is not the one waited for")
    if state.status is Status.PAUSED:
        return _ignored(state, "the run is paused: the call is made again when it is resumed")
    match event:
        case CallReserved():
            return asking.on_reserved(_next(state), event)
        case ModelReplied():
            return thinking.on_reply(_next(state), event)
        case ModelUnavailable():
            return asking.on_unavailable(_next(state), event)


def _on_result(state: RunState, event: ToolReturned) -> Transition:
    result, judgement = event.result, judge(state, event.result, event.place)
    if event.malformed and judgement.relation is not Relation.MATCH:
        return _ignored(state, judgement.reason)
    match judgement.relation:
        case Relation.STALE:
            return _ignored(state, judgement.reason)
        case Relation.LATE:
            return _on_late(state, event, judgement.reason)
        case Relation.VIOLATION:
            return endings.escalate(_next(state), "protocol_violation", judgement.reason, at=event.at)
        case Relation.MATCH if result.status == "ok":
            return asking.reflect(acting.finish_step(_next(state), result, at=event.at), at=event.at)
        case Relation.MATCH:
            error = _malformed(state, result) if event.malformed else _as_error(result)
            return _on_tool_error(_heard(_next(state), event.place), error, at=event.at)


def _heard(state: RunState, place: str) -> RunState:
    """Remember a message that did not name its attempt: delivered again it would answer the attempt after it."""
    pending = state.pending
    if pending is None or not place:
        return state
    heard = ForTool(pending=replace(pending, heard=(*pending.heard, place)))
    return replace(state, waiting=then(state.waiting, heard))


def _malformed(state: RunState, result: wire.ToolResult) -> wire.ToolResult:
    """The tool ran, and what it brought cannot be read: only a repeatable command can bear that."""
    pending = state.pending
    if result.error is None or pending is None or acting.is_repeatable(state, pending):
        return result
    return result.model_copy(update={"error": result.error.model_copy(update=_IN_DOUBT)})


def _on_late(state: RunState, event: ToolReturned, why: str) -> Transition:
    which = (event.result.step, event.result.attempt or 1)
    if which in state.late or state.has_finished(event.result.step):
        return _ignored(state, why)
    return Transition(state=replace(_next(state), late=(*state.late, which), updated_at=event.at))


def _as_error(result: wire.ToolResult) -> wire.ToolResult:
    """A result that is not ok, as an error. A tool's wish for more evidence is told to the model as such."""
    if result.status == "error":
        return (
            result if result.error else result.model_copy(update={"error": wire.ToolError(message="no reason given")})
        )
    error = wire.ToolError(error_class="continuation", message="the tool asks for more evidence before it can answer")
    return result.model_copy(update={"error": error})


def _on_tool_error(state: RunState, result: wire.ToolResult, *, at: datetime) -> Transition:
    pending, error = state.pending, result.error
    assert pending is not None, "a matched result"
    assert error is not None, "an error result carries its error"
    again = acting.retry(state, pending, error, at=at)
    if again:
        return again
    job = f", job {error.job_id}" if error.job_id else ""
    what = f"step {pending.step}: {pending.action.tool} failed ({error.error_class}{job}): {error.message}"
    if error.error_class in acting.HANDED_TO_A_PERSON:
        return endings.escalate(state, error.error_class, what, at=at)
    if acting.could_be_retried(state, pending, error):
        return endings.escalate(state, _spent_attempts(state), f"{what} (attempt {pending.attempt}, the last)", at=at)
    return asking.reflect(acting.finish_step(state, result, at=at), at=at)


def _spent_attempts(state: RunState) -> str:
    of_run = state.attempts >= state.brief.limits.max_attempts_of_run
    return "budget_attempts" if of_run else "tool_exhausted"


def _on_timer(state: RunState, at: datetime) -> Transition:
    due = state.due_at
    if due is None or at < due:
        return _ignored(state, "nothing is due")
    state = _next(state)
    if at >= state.brief.limits.deadline_at:
        return _on_deadline(state, at)
    match state.waiting:
        case ToolRetry(pending=pending):
            return acting.send(state, pending, at=at)
        case ForTool(pending=pending):
            return _on_tool_error(state, _timed_out(state, pending, at), at=at)
    return asking.ask_now(state, at)


def _on_deadline(state: RunState, at: datetime) -> Transition:
    past = limits.past_deadline(state.brief.limits)
    if state.status is Status.QUEUED:  # there is nothing yet that could be resumed
        return endings.escalate(state, *past, at=at)
    question = state.asking or asking.next_question(state, Phase.PLAN)
    return endings.out_of_budget(state, past, at=at, question=question)


def _timed_out(state: RunState, pending: Pending, at: datetime) -> wire.ToolResult:
    """No answer in time: the outcome is unknown, which only a repeatable command can bear."""
    repeatable = acting.is_repeatable(state, pending)
    error = wire.ToolError(
        error_class="timeout" if repeatable else "in_doubt",
        message=f"no result by {pending.deadline_at:%Y-%m-%dT%H:%M:%SZ}; whether the tool ran is not known",
        retryable=repeatable,
    )
    return wire.ToolResult(
        run_id=state.run_id,
        step=pending.step,
        tool=pending.action.tool,
        status="error",
        error=error,
        completed_at=at,
        attempt=pending.attempt,
    )


def _on_signal(state: RunState, event: SignalReceived) -> Transition:
    signal = event.signal
    if signal.signal_id in state.signals:
        return _ignored(state, f"signal {signal.signal_id} was heard already")
    heard = replace(_next(state), signals=(*state.signals, signal.signal_id)[-MAX_SIGNALS:], updated_at=event.at)
    if signal.message:
        told = notes.with_message(heard, signal.message)
        heard = replace(told, messages=(*told.messages, signal.message)[-notes.MOST_MESSAGES :])
    if signal.kind == "raise_budget" and signal.constraints:
        raised = limits.raised(heard.brief.limits, signal.constraints)
        heard = replace(heard, brief=replace(heard.brief, limits=raised))
    paused = heard.waiting if isinstance(heard.waiting, ForPerson) else None
    if paused and signal.kind == "reject":
        return endings.cancel(heard, signal.message or "rejected by a person", at=event.at)
    if paused and signal.kind in ("resume", "raise_budget", "approve"):
        return _resume(heard, paused, event.at)
    return Transition(state=heard)


def _resume(state: RunState, paused: ForPerson, at: datetime) -> Transition:
    running = replace(state, waiting=paused.held)
    if running.asking:
        return asking.ask_now(running, at)
    return Transition(state=running)
