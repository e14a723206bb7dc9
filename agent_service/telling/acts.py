"""What came of the attempts of steps, and how their executors carried them out."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import starmap
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict

from agent_service.core.events import TimerFired, ToolReturned
from agent_service.core.graph.continuing import wish_of
from agent_service.core.phases import Action
from agent_service.core.state import RunState, StepRecord
from agent_service.core.tools.acting import is_repeatable
from agent_service.core.tools.attempts import AGAIN, Evidence, Flight, Pending
from agent_service.core.tools.correlate import Relation, judge
from agent_service.core.tools.finishing import summary_of, summary_of_output
from agent_service.core.tools.flights import flight_of, gatherings
from agent_service.run.moments import Moment, opened
from agent_service.telling.plain import instant
from schemas.continuation import ContinuationInvalid, read
from schemas.events import ToolError, ToolResult
from schemas.fields import Count, Text, Told


class Execution(BaseModel):
    """`job_id` names the call, `attempts` counts how often the tool ran, `last_error` is its last failure."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    job_id: Annotated[Text | None, Told] = None
    attempts: Annotated[Count | None, Told] = None
    exit_code: Annotated[int | None, Told] = None
    stderr: Annotated[Text | None, Told] = None
    last_error: Annotated[Text | None, Told] = None

    def __str__(self) -> str:
        told = (
            f"job {self.job_id}" if self.job_id else "",
            f"run {self.attempts} times" if self.attempts and self.attempts > 1 else "",
            f"exit code {self.exit_code}" if self.exit_code else "",
            f"it failed before: {self.last_error}" if self.last_error else "",
        )
        return ", ".join(filter(None, told))


def execution_of(result: ToolResult) -> Execution | None:
    told = result.error.model_dump() if result.error else (result.result and result.result.model_extra) or {}
    execution = Execution.model_validate(told)
    return execution if execution.model_fields_set and execution != Execution() else None


ActStatus = Literal["ok", "error", "budget", "continuation", "late", "refused"]
"""`budget`: the step may gather no more. `late`: after the run's end. `refused`: a protocol violation."""
Name = tuple[int, str, int]
OWN = frozenset({None, "", AGAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """`action` is None where the run never planned the step; `task`, `round`: of a sub-request."""

    step: int
    attempt: int
    tool: str
    action: Action | None
    status: ActStatus
    summary: str | None
    error: ToolError | None
    execution: Execution | None = None
    task: str = ""
    round: int = 0

    @property
    def name(self) -> Name:
        return self.step, self.task, self.round

    @property
    def is_awaited(self) -> bool:
        return self.status not in ("late", "refused")


def item_of(name: Name) -> str:
    step, task, asked_in = name
    return f"step:{step}:task:{task}:{asked_in}" if task else f"step:{step}"


def act_of(moment: Moment) -> Act | None:
    if moment.before is None:
        return None
    if isinstance(moment.event, ToolReturned):
        return _answered(moment, moment.before, moment.event)
    if isinstance(moment.event, TimerFired) and moment.answered:
        return _overdue(moment.before, moment.answered)
    return None


def settled(moment: Moment) -> tuple[Act, ...]:
    """What ended by a person's word, a late result, its step's budget, or before it was sent (attempt 0)."""
    if moment.before is None or not (moment.finished or moment.after.evidence) or _is_plain(moment, moment.before):
        return ()
    answered, before, after = moment.answered, moment.before, moment.after
    own = answered.step if answered and answered.task in OWN else None
    over = (record for record in moment.finished if record.step != own)
    failed = (one for one in moment.gathered if answered is None or not _is_of(answered, one))
    of_tasks = (*starmap(by_answer, _forgotten(moment)), *(_by_itself(before, one) for one in failed))
    return *(_settled(before, after, record) for record in over), *of_tasks


def _is_plain(moment: Moment, before: RunState) -> bool:
    if not isinstance(moment.event, ToolReturned) or moment.gathered or gatherings(before.waiting):
        return False
    return all(record.step == moment.event.result.step for record in moment.finished)


def _forgotten(moment: Moment) -> Iterator[tuple[Pending, ToolResult]]:
    kept = {(one.step, one.task) for one in moment.gathered}
    for pending, result in moment.settled_by_answer:
        if pending.task and (pending.step, pending.task.removesuffix(f".{AGAIN}")) not in kept:
            yield pending, result


def by_answer(pending: Pending, result: ToolResult) -> Act:
    return Act(
        step=pending.step,
        attempt=pending.attempt,
        tool=pending.action.tool,
        action=pending.action,
        status="ok" if result.status == "ok" else "error",
        summary=summary_of(result) if result.status == "ok" else None,
        error=result.error,
        execution=execution_of(result),
        task=pending.task,
        round=pending.round,
    )


def _is_of(answered: Pending, known: Evidence) -> bool:
    return answered.step == known.step and known.task in (answered.task, answered.task.removesuffix(f".{AGAIN}"))


def _by_itself(before: RunState, known: Evidence) -> Act:
    flight, words = _flight(before, (known.step, known.task, known.round)), summary_of_output(known.output)
    error = ToolError(error_class=str(known.output.get("class", "")), message=words)
    return Act(
        step=known.step,
        attempt=flight.pending.attempt if flight else 0,
        tool=known.tool,
        action=Action(tool=known.tool, command=known.command, arguments={}),
        status=known.status,
        summary=words if known.status == "ok" else None,
        error=error if known.status == "error" else None,
        task=known.task,
        round=known.round,
    )


def _settled(before: RunState, after: RunState, record: StepRecord) -> Act:
    newest = after.last_result.output if after.last_result and after.last_result.step == record.step else {}
    error = ToolError(error_class=str(newest.get("class", "tool_error")), message=record.summary)
    return Act(
        step=record.step,
        attempt=record.attempt,
        tool=record.tool,
        action=_action(before, (record.step, "", 0)),
        status=record.status,
        summary=record.summary if record.status == "ok" else None,
        error=error if record.status != "ok" else None,
    )


def _answered(moment: Moment, before: RunState, event: ToolReturned) -> Act:
    result, judged = event.result, judge(before, event.result, event.place)
    pending, relation = judged.pending, judged.relation
    name = pending.name if pending else (result.step, result.task or "", result.round or 0)
    status: ActStatus = "late" if relation is Relation.LATE else "refused"
    error = result.error
    if relation is Relation.MATCH:
        status, error = _taken_up(moment, pending, result)
    return Act(
        step=result.step,
        attempt=result.attempt or _newest_attempt(before, name),
        tool=result.tool,
        action=_action(before, name),
        status=status,
        summary=None if error or status == "refused" else said_by(result),
        error=error,
        execution=execution_of(result),
        task=name[1],
        round=name[2],
    )


def said_by(result: ToolResult) -> str:
    if result.status == "continuation":
        with suppress(ContinuationInvalid):
            return wish_of(read(result.result))
    return summary_of(result)


def _taken_up(moment: Moment, pending: Pending | None, result: ToolResult) -> tuple[ActStatus, ToolError | None]:
    if result.status != "continuation" or pending is None:
        return result.status, result.error
    if moment.asks_for_more:
        return "continuation", None
    return _refused(moment.after, pending) or ("continuation", None)


def _refused(run: RunState, pending: Pending) -> tuple[ActStatus, ToolError] | None:
    status: ActStatus = "error"
    question = "" if pending.task == AGAIN else pending.task.removesuffix(f".{AGAIN}")
    came = [one.output for one in run.evidence if (one.step, one.task) == (pending.step, question)]
    output = came[-1] if came else None
    if run.has_finished(pending.step) and run.last_result and run.last_result.step == pending.step:
        status, output = run.last_result.status, run.last_result.output
    if output is None or status == "ok":
        return None
    return status, ToolError(error_class=str(output.get("class", "")), message=str(output.get("message", "")))


def _overdue(before: RunState, pending: Pending) -> Act:
    return Act(
        step=pending.step,
        attempt=pending.attempt,
        tool=pending.action.tool,
        action=pending.action,
        status="error",
        summary=None,
        error=_no_newest(before, pending),
        task=pending.task,
        round=pending.round,
    )


def _no_newest(before: RunState, pending: Pending) -> ToolError:
    repeatable = is_repeatable(before, pending)
    return ToolError(
        error_class="timeout" if repeatable else "in_doubt",
        message=f"no result by {instant(pending.deadline_at)}",
        retryable=repeatable,
    )


def _newest_attempt(state: RunState, name: Name) -> int:
    flight = flight_of(state.waiting, *name)
    return flight.pending.attempt if flight else 1


def _action(state: RunState, name: Name) -> Action | None:
    flight = _flight(state, name)
    if flight or name[1] not in OWN:
        return flight.pending.action if flight else None
    return dict(_newest_steps(state)).get(name[0])


def _flight(state: RunState, name: Name) -> Flight | None:
    return flight_of(opened(state), *name)


def _newest_steps(run: RunState) -> Iterator[tuple[int, Action]]:
    actions = run.plan.actions if run.plan else ()
    first = run.step - len(actions) + 1
    yield from ((step, action) for step, action in enumerate(actions, start=first) if step > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    step: int
    attempt: int
    action: Action


def unfinished(run: RunState) -> tuple[Unfinished, ...]:
    if not run.final:
        return ()
    left = [(step, action) for step, action in _newest_steps(run) if not run.has_finished(step)]
    sent = run.attempts - sum(record.attempt for record in run.completed)
    return tuple(Unfinished(step=step, attempt=_attempt(run, step, sent, len(left)), action=a) for step, a in left)


def _attempt(run: RunState, step: int, sent: int, unfinished_steps: int) -> int:
    late = [attempt for of, attempt in run.late if of == step]
    return min(sent, run.brief.limits.max_attempts) if unfinished_steps == 1 else max(late, default=1)


def executor_of(run: RunState, pending: Pending) -> str | None:
    skill = run.brief.skill(pending.action.tool)
    return skill.executor if skill else None
