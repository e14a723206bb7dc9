"""What of interest there is to see in a story: the generator is honest only if all of it is seen."""

from collections.abc import Iterator

from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    SignalReceived,
    TimerFired,
    ToolReturned,
    WakeAccepted,
)
from agent_service.core.phases import Decision
from agent_service.core.state import RunState
from agent_service.core.waiting import ForModel, ForTool, ModelRetry, Pending, ToolRetry, under_way
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
    if moment.before and after(moment).spent.lost_calls > moment.before.spent.lost_calls:
        yield f"call lost: {after(moment).status}"


def _event_of(event: object, before: RunState, moment: Moment) -> Iterator[str]:
    how = f"{before.status}{', ignored' if moment.transition.ignored else ''}"
    match event:
        case ToolReturned(result=result):
            yield from (f"result: {how}", f"result: {result.status}")
            yield f"result: waits for {_waits_for(before)}{_age(result, before.pending)}"
        case ModelReplied() | ModelUnavailable() | CallReserved():
            yield from _model_event_of(event, before, moment)
        case CancelRequested():
            yield f"cancel: {how}" if before.final else f"cancel: {how}, {_waits_for(before)}"
        case SignalReceived():
            yield f"signal: {how}"
        case TimerFired():
            yield "timeout" if timed_out(moment) else f"timer: {how}"
        case WakeAccepted():
            yield f"wake: {how}"


def _model_event_of(
    event: ModelReplied | ModelUnavailable | CallReserved, before: RunState, moment: Moment
) -> Iterator[str]:
    how = f"{before.status}{', ignored' if moment.transition.ignored else ''}"
    match event:
        case ModelReplied(usage=usage):
            limited = "limited" if before.brief.limits.max_cost_usd is not None else "unlimited"
            yield from (f"reply: {how}", f"reply: cost {usage.cost_usd}, {limited}")
            yield from _thought(moment, before) if before.asking and not moment.transition.ignored else ()
        case ModelUnavailable(remedy="shrink"):
            yield f"shrink: {after(moment).status}"
        case CallReserved(reserve=reserve):
            yield f"reserve: {how}"
            stopped = pauses(moment) or [after(moment).ending_class] * len(finals(moment))
            yield from (f"reserve: cost {reserve.cost_usd}, {ending_class}" for ending_class in stopped)


def _thought(moment: Moment, before: RunState) -> Iterator[str]:
    event, asking = moment.event, before.asking
    assert isinstance(event, ModelReplied)
    assert asking is not None
    yield f"{asking.phase}: {_kind(event.decision)}"
    if asking.phase in ("frame", "reflect") and event.plan is not None:
        led_to = "dispatched" if after(moment).pending else "not dispatched"
        yield f"{asking.phase} with a plan: {_kind(event.plan)}, {led_to}"
    if asking.phase == "compact" and after(moment).notes != before.notes:
        yield f"compacted by {_kind(event.decision)}"


def _kind(decision: Decision) -> str:
    return type(decision).__name__


def _age(result: ToolResult, pending: Pending | None) -> str:
    same = pending is not None and (result.step, result.tool) == (pending.step, pending.action.tool)
    return ", older attempt" if same and pending and (result.attempt or pending.attempt) < pending.attempt else ""


def _waits_for(state: RunState) -> str:
    match under_way(state.waiting):
        case ForTool():
            return "tool"
        case ToolRetry():
            return "retry"
        case ForModel() | ModelRetry():
            return "model"
    return "start"
