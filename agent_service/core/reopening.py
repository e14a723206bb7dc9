"""Reopening: a person's answer sets a run going again that was handed to them.

Rules: only what escalated, and not too long ago. The run goes on with its journal, its notes and what was pending. A
budget that ended it has to be raised with the answer. Of a write in doubt the person says whether it was carried out,
or lets the model look first.
"""

from datetime import datetime, timedelta

from agent_service.core import acting, asking, hearing, limits, results
from agent_service.core.effects import Transition, publish
from agent_service.core.events import SignalReceived
from agent_service.core.phases import Phase
from agent_service.core.replacing import replace
from agent_service.core.state import Doubt, RunState
from agent_service.core.waiting import Deciding, Ended, ForTool, Pending, Planned, Status, ToolRetry
from schemas import keys, subjects
from schemas.events import Outcome, Reopened, Signal, ToolError, ToolOutput, ToolResult


def reopen(state: RunState, event: SignalReceived) -> Transition | str:
    """Go on with the answer; or why it stays closed."""
    ended = state.waiting
    assert isinstance(ended, Ended)
    if flaw := _flaw(state, ended, event):
        return flaw
    heard = hearing.told(state, event)
    if isinstance(heard, str):
        return heard
    running = _running(limits.stood_still(heard, ended.at, event.at))
    if spent := limits.reached_before_a_call(running, event.at) or _steps_spent(running, ended, event):
        return f"{spent[1]}: raise that with the answer"
    then = _resumed(running, ended, event)
    opened = publish(subjects.REOPENED, _reopened(state, ended, event), keys.reopened(state.run_id, state.version))
    return replace(then, effects=(opened, *then.effects))


def _flaw(state: RunState, ended: Ended, event: SignalReceived) -> str:
    if ended.status is not Status.ESCALATED:
        return f"the run has ended ({ended.status})"
    if event.signal.kind != "answer":
        return f"the run has ended ({ended.status}): an answer reopens it"
    if not event.signal.message and event.signal.outcome is None:
        return "an answer needs a message"
    if event.at > closes_at(state, ended):
        return f"the run was handed over more than {state.brief.limits.reopen_days:g} days ago"
    return ""


def closes_at(state: RunState, ended: Ended) -> datetime:
    """Until when an answer sets a run going again that was handed to a person."""
    return ended.at + timedelta(days=state.brief.limits.reopen_days)


def _running(state: RunState) -> RunState:
    """The state as it goes on: what was counted against it is forgiven, but not what it spent."""
    granted = state.brief.limits
    attempts = max(granted.max_attempts_of_run, state.attempts + granted.max_attempts)
    brief = replace(state.brief, limits=replace(granted, max_attempts_of_run=attempts))
    return replace(
        state,
        waiting=Deciding(),
        brief=brief,
        refused_done=0,
        waited_at_step=state.step,
        reopened=state.reopened + 1,
        summary="reopened by an answer",
    )


def _steps_spent(state: RunState, ended: Ended, event: SignalReceived) -> tuple[str, str] | None:
    spent = limits.reached_before_a_step(state, event.at)
    return spent if ended.stop.ending_class == "budget_steps" else None


def _reopened(state: RunState, ended: Ended, event: SignalReceived) -> Reopened:
    return Reopened(
        run_id=state.run_id,
        by=event.by,
        answer_to=ended.stop.ending_class,
        message=event.signal.message,
        has_callback=state.brief.callback is not None,
    )


def _resumed(state: RunState, ended: Ended, event: SignalReceived) -> Transition:
    match ended.held:
        case ForTool(pending=pending) | ToolRetry(pending=pending):
            return _with_the_step(state, pending, ended, event)
        case Planned() as planned:
            return hearing.go_on(replace(state, waiting=planned), at=event.at)
    return asking.ask(state, _next_phase(state), at=event.at)


def _next_phase(state: RunState) -> Phase:
    """What would have been asked next."""
    if state.framing is None:
        return Phase.FRAME
    return Phase.REFLECT if state.completed and state.reflection is None else Phase.PLAN


def _with_the_step(state: RunState, pending: Pending, ended: Ended, event: SignalReceived) -> Transition:
    """The step that was open is finished with what came of it, sent again where it may be, or in doubt."""
    waiting = replace(state, waiting=ForTool(pending=pending))
    came = next((result for result in reversed(ended.came) if result.step == pending.step), None)
    in_doubt = came is None or (came.error is not None and came.error.error_class == "in_doubt")
    if came is not None and not in_doubt:
        return asking.reflect(results.finish_step(waiting, came, at=event.at), at=event.at)
    if acting.is_repeatable(state, pending):
        return acting.send(waiting, replace(pending, attempt=pending.attempt + 1), at=event.at)
    result = _by_word(pending, event)
    finished = results.finish_step(waiting, result, at=event.at)
    if result.error is not None and result.error.error_class == "in_doubt":
        doubt = Doubt(step=pending.step, tool=pending.action.tool, call=acting.name_of_call(pending.action))
        finished = replace(finished, doubts=(*finished.doubts, doubt))
    return asking.reflect(finished, at=event.at)


def _by_word(pending: Pending, event: SignalReceived) -> ToolResult:
    """What a person says came of a write in doubt, as its result."""
    outcome, message = outcome_of(event.signal), event.signal.message or ""
    ok = outcome == "ran"
    error_class = {"did_not_run": "did_not_run"}.get(outcome, "in_doubt")
    told = {
        "did_not_run": "a person says that it was not carried out",
        "look": "whether it was carried out is not known: look with a read of the same tool before it is repeated",
    }.get(outcome, "")
    return ToolResult(
        run_id=event.signal.run_id,
        step=pending.step,
        tool=pending.action.tool,
        status="ok" if ok else "error",
        result=ToolOutput.model_validate({"summary": message, "said_by": "a person"}) if ok else None,
        error=None if ok else ToolError(error_class=error_class, message=f"{told}. {message}".strip()),
        completed_at=event.at,
        attempt=pending.attempt,
    )


def outcome_of(signal: Signal) -> Outcome:
    """What an answer says of a write in doubt; words that say nothing of it let the model look."""
    if signal.outcome is not None:
        return signal.outcome
    words = (signal.message or "").casefold().lstrip()
    if words.startswith(("it did not", "it didn't", "it was not")):
        return "did_not_run"
    return "ran" if words.startswith(("it ran", "it was done", "it did")) else "look"
