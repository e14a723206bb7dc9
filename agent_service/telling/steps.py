"""One step of a run in full: what was asked of its tool and why, and all that came back. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from agent_service.core.attempts import Pending
from agent_service.core.events import ToolReturned
from agent_service.core.phases import Action, Plan
from agent_service.core.state import RunState
from agent_service.moments import Moment
from agent_service.telling.acts import Act, act_of, executor_of, settled
from agent_service.telling.timeline_items import ErrorView, ItemStatus
from agent_service.telling.view import View
from schemas.fields import Instant


class AttemptView(View):
    """One attempt. `result` is all that the tool brought; `execution` is how its executor carried it out.

    `status` is `open` while it is waited for, `waiting` before it is sent, `cancelled` where it was under way when the
    run ended, and `refused` for a result that came after that.
    """

    attempt: int
    requested_at: Instant | None
    deadline_at: Instant | None
    completed_at: Instant | None = None
    status: ItemStatus
    result: dict[str, JsonValue] | None = None
    error: ErrorView | None = None
    execution: str | None = None


class StepDetail(View):
    """One step. `route` is where its requests go; `executor` is who was asked, null where it tells no name.

    `approved_by` is the person who allowed it; null where nobody had to.
    """

    run_id: str
    step: int
    tool: str
    command: str
    route: str
    executor: str | None
    arguments: dict[str, JsonValue]
    expected: str
    risk: str
    rationale: str
    approved_by: str | None
    attempts: tuple[AttemptView, ...]


def step_detail(moments: Iterable[Moment], step: int) -> StepDetail | None:
    """The step, as the whole journal tells it; None for one that was never sent."""
    about: dict[str, Any] | None = None
    attempts: dict[int, AttemptView] = {}
    for moment in moments:
        if about:
            attempts |= _came(moment, step, about["tool"], attempts)
        sent = next((pending for pending in moment.sent if pending.step == step), None)
        about = about or (_about(moment, sent) if sent else None)
        attempts |= _under_way(moment, step)
        if moment.ended:
            attempts = {number: _left(attempt) for number, attempt in attempts.items()}
    return StepDetail(**about, step=step, attempts=tuple(attempts.values())) if about else None


def _came(moment: Moment, step: int, tool: str, known: Mapping[int, AttemptView]) -> dict[int, AttemptView]:
    """What came of an attempt with this moment, or what a person's answer made of it."""
    act = act_of(moment)
    if act and (act.step, act.tool) == (step, tool) and act.status != "refused":
        return {act.attempt: _answered(moment, act, known.get(act.attempt))}
    words = (word for word in settled(moment) if word.step == step and word.attempt in known)
    return {word.attempt: _settled(moment, word, known[word.attempt]) for word in words}


def _under_way(moment: Moment, step: int) -> dict[int, AttemptView]:
    """The attempt that is sent with this moment, goes on since it, or follows later."""
    goes_on = (*moment.sent, *(flight.pending for flight in moment.kept))
    attempts = {pending.attempt: _sent(pending) for pending in goes_on if pending.step == step}
    if moment.retry and moment.retry.pending.step == step:
        number = moment.retry.pending.attempt
        attempts[number] = AttemptView(attempt=number, requested_at=None, deadline_at=None, status="waiting")
    return attempts


def _about(moment: Moment, sent: Pending) -> dict[str, Any]:
    run, action = moment.after, sent.action
    plan = run.plan or Plan(action=Action(tool=action.tool, command=action.command, arguments={}))
    return {
        "run_id": run.run_id,
        "tool": action.tool,
        "command": action.command,
        "route": sent.route,
        "executor": executor_of(run, sent),
        "arguments": action.arguments,
        "expected": plan.expected_outcome,
        "risk": plan.risk,
        "rationale": plan.rationale,
        "approved_by": next(
            (ruling.by for ruling in run.rulings if ruling.step == sent.step and ruling.verdict == "approved"), None
        ),
    }


def _approved_by(run: RunState, step: int) -> str | None:
    rulings = (ruling.by for ruling in run.rulings if ruling.step == step and ruling.verdict == "approved")
    return next(rulings, None)


def _sent(sent: Pending) -> AttemptView:
    return AttemptView(
        attempt=sent.attempt, requested_at=sent.requested_at, deadline_at=sent.deadline_at, status="open"
    )


def _answered(moment: Moment, act: Act, sent: AttemptView | None) -> AttemptView:
    statuses: dict[str, ItemStatus] = {"ok": "ok", "late": "refused"}
    result = moment.event.result if isinstance(moment.event, ToolReturned) else None
    known = sent or AttemptView(attempt=act.attempt, requested_at=None, deadline_at=None, status="open")
    return known.model_copy(
        update={
            "status": statuses.get(act.status, "error"),
            "completed_at": result.completed_at if result else None,
            "result": result.result.model_dump(mode="json", exclude_none=True) if result and result.result else None,
            "error": ErrorView.of(act.error),
            "execution": str(act.execution) if act.execution else None,
        }
    )


def _settled(moment: Moment, act: Act, known: AttemptView) -> AttemptView:
    """The attempt once a person's answer settled what came of it."""
    newest = moment.after.last_result
    said = newest.output if newest and newest.step == act.step and act.error is None else None
    told = {"status": "ok" if act.error is None else "error", "completed_at": moment.entry.at, "result": said}
    return known.model_copy(update=told | {"error": ErrorView.of(act.error)})


def _left(attempt: AttemptView) -> AttemptView:
    return attempt.model_copy(update={"status": "cancelled"}) if attempt.status in ("open", "waiting") else attempt
