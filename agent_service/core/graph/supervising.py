"""Supervising: starts the children that a run waits for, cancels the others, and tells a child's end to its parent.

A cancelled child's grant stays set aside until it has told its end. If only its step may gather no more, that end is
waited for: it may name writes.
"""

from datetime import datetime

from agent_service.core.effects import CancelChild, Effect, StartChild, Transition
from agent_service.core.events import Event, ToolReturned
from agent_service.core.graph import children, grants, reporting
from agent_service.core.state import Child, RunState, replace
from agent_service.core.tools.attempts import Pending
from agent_service.core.tools.flights import flights
from agent_service.core.waiting import Ended, acting_of
from schemas.events import ToolError, ToolResult


def concerns(state: RunState) -> bool:
    return state.brief.may_have_children or state.brief.as_step is not None


def followed(before: RunState, event: Event, then: Transition) -> Transition:
    if then.ignored or then.state is None:
        return _accounted(before, event, then)
    after = _paid(before, event, then.state)
    ends = after.final and not before.final
    after = reporting.with_open_writes(before, event, after) if ends else after
    started, gone = _started(before, after), _gone(before, event, after)
    after = _noted(after, started, gone)
    effects: tuple[Effect, ...] = (
        *then.effects,
        *(StartChild(wake=children.wake(after, pending)) for pending in started),
        *(_cancel(after, pending) for pending in gone),
        *(reporting.report(after) if ends else ()),
    )
    return replace(then, state=after, effects=effects)


def owed(state: RunState) -> tuple[StartChild | CancelChild, ...]:
    held = acting_of(state.waiting.held).pendings if isinstance(state.waiting, Ended) else ()
    gone = (*filter(children.is_child, held), *state.given_up, *children.stopping(state))
    starts = (StartChild(wake=children.wake(state, pending)) for pending in children.under_way(state))
    return *starts, *(_cancel(state, pending) for pending in gone)


def awaited(state: RunState, result: ToolResult) -> Pending | None:
    return next((pending for pending in _not_told(state) if _answers(result, pending)), None)


def unreadable(state: RunState, run_id: str, why: str, at: datetime) -> ToolResult | None:
    """The result of a child that cannot be read: an error that spends its grant. None where it has told its end."""
    pending = next((one for one in _not_told(state) if children.run_id_of(state.run_id, one) == run_id), None)
    if pending is None:
        return None
    message = f"what became of the run {run_id}, and whether it wrote anything, cannot be read any more: {why}"
    return ToolResult(
        run_id=state.run_id,
        step=pending.step,
        tool=pending.action.tool,
        status="error",
        error=ToolError(error_class="child_lost", message=message, retryable=False),
        completed_at=at,
        attempt=pending.attempt,
        task=pending.task or None,
        round=pending.round or None,
    )


def _not_told(state: RunState) -> list[Pending]:
    held = acting_of(state.waiting.held).pendings if isinstance(state.waiting, Ended) else ()
    known = (*(flight.pending for flight in flights(state.waiting)), *held, *state.given_up)
    return [pending for pending in known if children.is_child(pending)]


def _answers(result: ToolResult, pending: Pending) -> bool:
    which = (result.step, result.task or "", (result.round or 0) if result.task else 0)  # a step's own has no rounds
    return which == pending.name and result.attempt in (None, pending.attempt)


def _answered(event: Event, pending: Pending) -> bool:
    return isinstance(event, ToolReturned) and _answers(event.result, pending)


def _started(before: RunState, after: RunState) -> list[Pending]:
    known = children.under_way(before)
    return [pending for pending in children.under_way(after) if not _is_among(pending, known)]


def _gone(before: RunState, event: Event, after: RunState) -> list[Pending]:
    kept, stopping = children.under_way(after), children.stopping(before)
    dropped = [p for p in children.under_way(before) if not _is_among(p, kept) and not _answered(event, p)]
    return [*dropped, *(p for p in children.stopping(after) if not _is_among(p, stopping))]


def _is_among(pending: Pending, others: tuple[Pending, ...]) -> bool:
    return any((other.name, other.attempt) == (pending.name, pending.attempt) for other in others)


def _noted(after: RunState, started: list[Pending], gone: list[Pending]) -> RunState:
    held = acting_of(after.waiting.held).pendings if isinstance(after.waiting, Ended) else ()
    new = [_child(after, pending) for pending in started]
    listed = tuple(dict.fromkeys((*after.children, *new))) if new else after.children
    waited_for = (*held, *children.under_way(after))
    given_up = tuple(pending for pending in gone if not _is_among(pending, waited_for))
    if not new and not given_up:
        return after
    return replace(after, children=listed, given_up=(*after.given_up, *given_up))


def _child(state: RunState, pending: Pending) -> Child:
    run_id = children.run_id_of(state.run_id, pending)
    return Child(run_id=run_id, step=pending.step, task=pending.task, round=pending.round)


def _cancel(state: RunState, pending: Pending) -> CancelChild:
    what = f"has ended ({state.status})" if state.final else f"gave up its step {pending.step}"
    return CancelChild(
        run_id=children.run_id_of(state.run_id, pending),
        reason=f"the run {state.run_id} {what}, and waits for it no more",
    )


def _accounted(before: RunState, event: Event, ignored: Transition) -> Transition:
    paid = _paid(before, event, before)
    if paid is before or ignored.state is None:
        return ignored
    return Transition(state=replace(paid, version=before.version + 1, updated_at=event.at))


def _paid(before: RunState, event: Event, after: RunState) -> RunState:
    told = next((pending for pending in before.given_up if _answered(event, pending)), None)
    if told is None or not isinstance(event, ToolReturned):
        return after
    left = tuple(pending for pending in after.given_up if pending is not told)
    return grants.settled(replace(after, given_up=left), told, event.result)
