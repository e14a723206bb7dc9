"""What of interest there is to see in a story: the generator is honest only if all of it is seen."""

from collections.abc import Iterator

from agent_service.core.events import (
    CancelRequested,
    ModelReplied,
    SignalReceived,
    TimerFired,
    ToolReturned,
    WakeAccepted,
)
from agent_service.core.state import Pending, RunState
from schemas.events import ToolResult
from tests.core.rules.reading import Story, after, finals, pauses, sent, timed_out
from tests.core.script import Moment


def sights(story: Story) -> set[str]:
    seen = {sight for moment in story for sight in _sights_of(moment)}
    seen |= {f"attempt {request.attempt}" for request in sent(story)}
    return seen | {f"step {request.step}" for request in sent(story)}


def _sights_of(moment: Moment) -> Iterator[str]:
    yield from (f"{name}: {after(moment).ending_class}" for name in finals(moment))
    yield from (f"paused: {ending_class}" for ending_class in pauses(moment))
    yield from _event_of(moment.event, moment.before, moment) if moment.before else ()


def _event_of(event: object, before: RunState, moment: Moment) -> Iterator[str]:
    how = f"{before.status}{', ignored' if moment.transition.ignored else ''}"
    match event:
        case ToolReturned(result=result):
            yield from (f"result: {how}", f"result: {result.status}")
            yield f"result: waits for {_waits_for(before)}{_age(result, before.pending)}"
        case ModelReplied(usage=usage):
            limited = "limited" if before.brief.limits.max_cost_usd is not None else "unlimited"
            yield from (f"reply: {how}", f"reply: cost {usage.cost_usd}, {limited}")
        case CancelRequested():
            yield f"cancel: {how}" if before.final else f"cancel: {how}, {_waits_for(before)}"
        case SignalReceived():
            yield f"signal: {how}"
        case TimerFired():
            yield "timeout" if timed_out(moment) else f"timer: {how}"
        case WakeAccepted():
            yield f"wake: {how}"


def _age(result: ToolResult, pending: Pending | None) -> str:
    same = pending is not None and (result.step, result.tool) == (pending.step, pending.action.tool)
    return ", older attempt" if same and pending and result.attempt < pending.attempt else ""


def _waits_for(state: RunState) -> str:
    if state.pending:
        return "retry" if state.pending.retry_at else "tool"
    return "model" if state.asking else "start"
