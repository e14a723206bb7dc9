"""One step of a run in full: what was asked of its tool and why, and all that came back."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from agent_service.core.events import ToolReturned
from agent_service.core.phases import Action, Plan
from agent_service.core.tools.attempts import Pending
from agent_service.core.waiting import Approval
from agent_service.run.moments import Moment
from agent_service.telling.acts import Act, Name, act_of, executor_of, settled
from agent_service.telling.history.items import ErrorView, ItemStatus
from agent_service.telling.plain import View
from agent_service.telling.tasks import Key, Tasks, TaskView, child_of
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


class TaskDetail(TaskView):
    """A sub-request of a step in full. `approved_by` is as in StepDetail."""

    arguments: dict[str, JsonValue]
    approved_by: str | None
    attempts: tuple[AttemptView, ...]


class StepDetail(View):
    """One step. `route` is where its requests go; `executor` is who was asked, null where it tells no name.

    `approved_by` is the person who allowed it; null where nobody had to. `attempts` are those of its own request,
    `tasks` what its tool asked for before it could answer, and each time that it was asked again. `child_run_id` is as
    in the run's view.
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
    child_run_id: str | None
    attempts: tuple[AttemptView, ...]
    tasks: tuple[TaskDetail, ...]


def step_detail(moments: Iterable[Moment], step: int) -> StepDetail | None:
    asked = _Asked(step)
    for moment in moments:
        asked.hear(moment)
    return asked.detail()


class _Asked:
    def __init__(self, step: int) -> None:
        self._step = step
        self._about: dict[str, Any] = {}
        self._tasks = Tasks()
        self._sent: dict[Key, dict[str, Any]] = {}
        self._attempts = defaultdict[Key, dict[int, AttemptView]](dict)

    def hear(self, moment: Moment) -> None:
        self._tasks.hear([moment])
        for name, attempt in _came(moment, self._attempts):
            self._keep(name, attempt)
        for sent in (sent for sent in moment.sent if sent.step == self._step):
            self._about = self._about or _about(moment, sent)
            self._sent.setdefault((sent.task, sent.round), _with(moment, sent))
        for pending, attempt in _under_way(moment):
            self._keep(pending.name, attempt)
        if moment.ended or moment.after.has_finished(self._step):
            for of_request in self._attempts.values():
                of_request |= {number: _left(attempt) for number, attempt in of_request.items()}

    def detail(self) -> StepDetail | None:
        if not self._about:
            return None
        own = tuple(self._attempts["", 0].values())
        tasks = tuple(map(self._task, self._tasks.of(self._step)))
        return StepDetail(**self._about, step=self._step, attempts=own, tasks=tasks)

    def _task(self, view: TaskView) -> TaskDetail:
        sent = self._sent.get(view.key, {"arguments": {}, "approved_by": None})
        return TaskDetail(**view.model_dump(by_alias=True), **sent, attempts=tuple(self._attempts[view.key].values()))

    def _keep(self, name: Name, attempt: AttemptView) -> None:
        step, *_ = name
        if step == self._step:
            self._attempts[name[1:]][attempt.attempt] = attempt


def _came(moment: Moment, known: Mapping[Key, Mapping[int, AttemptView]]) -> Iterator[tuple[Name, AttemptView]]:
    act = act_of(moment)
    if act and act.status != "refused" and act.action and act.action.tool == act.tool:
        yield act.name, _answered(moment, act, known.get((act.task, act.round), {}).get(act.attempt))
    for word in settled(moment):
        attempt = known.get((word.task, word.round), {}).get(word.attempt)
        if attempt and attempt.status != "continuation":  # that was its answer, whatever ends the step now
            yield word.name, _settled(moment, word, attempt)


def _under_way(moment: Moment) -> Iterator[tuple[Pending, AttemptView]]:
    for pending in (*moment.sent, *(flight.pending for flight in moment.kept)):
        yield pending, _sent(pending)
    if moment.retry:
        number = moment.retry.pending.attempt
        waits = AttemptView(attempt=number, requested_at=None, deadline_at=None, status="waiting")
        yield moment.retry.pending, waits


def _about(moment: Moment, sent: Pending) -> dict[str, Any]:
    run, action = moment.after, sent.action
    plan = run.plan or Plan(action=Action(tool=action.tool, command=action.command, arguments={}))
    return {
        "run_id": run.run_id,
        "tool": action.tool,
        "command": action.command,
        "route": sent.route,
        "executor": executor_of(run, sent),
        "expected": plan.expected_outcome,
        "risk": plan.risk,
        "rationale": plan.rationale,
        "child_run_id": child_of(run, sent.name),
        **_with(moment, sent),
    }


def _with(moment: Moment, sent: Pending) -> dict[str, Any]:
    return {"arguments": sent.action.arguments, "approved_by": _approved_by(moment, sent)}


def _approved_by(moment: Moment, sent: Pending) -> str | None:
    asked = moment.before.ask if moment.before else None
    if sent.task:
        is_allowed = isinstance(asked, Approval) and (asked.step, asked.task, asked.round) == sent.name
        return moment.after.rulings[-1].by if is_allowed else None
    rulings = (ruling for ruling in moment.after.rulings if ruling.step == sent.step)
    return next((ruling.by for ruling in rulings if ruling.verdict == "approved"), None)


def _sent(sent: Pending) -> AttemptView:
    return AttemptView(
        attempt=sent.attempt, requested_at=sent.requested_at, deadline_at=sent.deadline_at, status="open"
    )


def _answered(moment: Moment, act: Act, sent: AttemptView | None) -> AttemptView:
    statuses: dict[str, ItemStatus] = {"ok": "ok", "late": "refused", "continuation": "continuation"}
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
    newest = moment.after.last_result
    said = newest.output if newest and newest.step == act.step and act.error is None else None
    told = {"status": "ok" if act.error is None else "error", "completed_at": moment.entry.at, "result": said}
    return known.model_copy(update=told | {"error": ErrorView.of(act.error)})


def _left(attempt: AttemptView) -> AttemptView:
    return attempt.model_copy(update={"status": "cancelled"}) if attempt.status in ("open", "waiting") else attempt
