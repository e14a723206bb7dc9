"""Acts: what came of the attempts of steps, and which step a run left unfinished. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from agent_service.core.acting import is_repeatable
from agent_service.core.attempts import Pending
from agent_service.core.correlate import Relation, judge
from agent_service.core.events import ModelReplied, TimerFired, ToolReturned
from agent_service.core.finishing import summary_of
from agent_service.core.flights import flight_of
from agent_service.core.phases import Action
from agent_service.core.state import RunState, StepRecord
from agent_service.core.waiting import Ended
from agent_service.journal import Entry
from agent_service.moments import Moment
from agent_service.telling.executions import Execution, execution_of
from agent_service.telling.plain import instant
from schemas.events import ToolError, ToolResult

ActStatus = Literal["ok", "error", "budget", "continuation", "late", "refused"]
"""`late`: it came after the run's end. `refused`: it was not what the run waited for (a protocol violation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One attempt and its outcome. `action` is None where the run never planned this step."""

    step: int
    attempt: int
    tool: str
    action: Action | None
    status: ActStatus
    summary: str | None
    error: ToolError | None
    execution: Execution | None = None


def act_of(moment: Moment) -> Act | None:
    """The act that `moment` tells of, if it tells of one."""
    if moment.before is None:
        return None
    if isinstance(moment.event, ToolReturned):
        return _answered(moment, moment.before, moment.event)
    if isinstance(moment.event, TimerFired) and moment.answered:
        return _overdue(moment.before, moment.answered)
    return None


def settled(moment: Moment) -> tuple[Act, ...]:
    """The acts of steps that a person's answer settles: by what came of them after the end, or by the person's word."""
    if moment.before is None or not moment.reopened:
        return ()
    return tuple(_settled(moment.before, moment.after, record) for record in moment.finished)


def _settled(before: RunState, after: RunState, record: StepRecord) -> Act:
    newest = after.last_result.output if after.last_result and after.last_result.step == record.step else {}
    error = ToolError(error_class=str(newest.get("class", "tool_error")), message=record.summary)
    return Act(
        step=record.step,
        attempt=record.attempt,
        tool=record.tool,
        action=_action(before, record.step),
        status=record.status,
        summary=record.summary if record.status == "ok" else None,
        error=error if record.status == "error" else None,
    )


def _answered(moment: Moment, before: RunState, event: ToolReturned) -> Act:
    result = event.result
    relation = judge(before, result, event.place).relation
    matched = relation is Relation.MATCH
    status: ActStatus = result.status if matched else "late" if relation is Relation.LATE else "refused"
    said = moment.finished[0].summary if moment.finished else summary_of(result) if status == "late" else None
    return Act(
        step=result.step,
        attempt=result.attempt or _newest_attempt(before, result.step),
        tool=result.tool,
        action=_action(before, result.step),
        status=status,
        summary=said if result.error is None else None,
        error=result.error,
        execution=execution_of(result),
    )


def _overdue(before: RunState, pending: Pending) -> Act:
    """The attempt that was given up because no answer came in time."""
    return Act(
        step=pending.step,
        attempt=pending.attempt,
        tool=pending.action.tool,
        action=pending.action,
        status="error",
        summary=None,
        error=_no_newest(before, pending),
    )


def _no_newest(before: RunState, pending: Pending) -> ToolError:
    repeatable = is_repeatable(before, pending)
    return ToolError(
        error_class="timeout" if repeatable else "in_doubt",
        message=f"no result by {instant(pending.deadline_at)}",
        retryable=repeatable,
    )


def _newest_attempt(state: RunState, step: int) -> int:
    flight = flight_of(state.waiting, step)
    return flight.pending.attempt if flight else 1


def _action(state: RunState, step: int) -> Action | None:
    waiting = state.waiting.held or state.waiting if isinstance(state.waiting, Ended) else state.waiting
    flight = flight_of(waiting, step)
    return flight.pending.action if flight else dict(_newest_steps(state)).get(step)


def _newest_steps(run: RunState) -> Iterator[tuple[int, Action]]:
    """The newest steps, with the actions of the newest plan: several of them where it had several."""
    actions = run.plan.actions if run.plan else ()
    first = run.step - len(actions) + 1
    yield from ((step, action) for step, action in enumerate(actions, start=first) if step > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Sent, and never completed."""

    step: int
    attempt: int
    action: Action


def unfinished(run: RunState) -> tuple[Unfinished, ...]:
    """The steps that were under way when the run ended; none while it goes on, and when all were finished."""
    if not run.final:
        return ()
    left = [(step, action) for step, action in _newest_steps(run) if not run.has_finished(step)]
    sent = run.attempts - sum(record.attempt for record in run.completed)
    return tuple(Unfinished(step=step, attempt=_attempt(run, step, sent, len(left)), action=a) for step, a in left)


def _attempt(run: RunState, step: int, sent: int, unfinished_steps: int) -> int:
    """The newest attempt of a step that was not finished: all that were `sent`, where it is the only one."""
    late = [attempt for of, attempt in run.late if of == step]
    return sent if unfinished_steps == 1 else max(late, default=1)


def executor_of(run: RunState, pending: Pending) -> str | None:
    """Who was asked for the pending attempt, by its name where it is known."""
    skill = run.brief.skill(pending.action.tool)
    return skill.executor if skill else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestResult:
    """The newest result of a step, also one that came after the run's end."""

    tool: str
    attempt: int | None
    status: str
    summary: str
    error: ToolError | None
    execution: Execution | None


class Heard:
    """What a journal says of a run beyond its state: the newest result of each step, and the models that replied.

    It takes up a journal bit by bit: `seq` is the last entry that it has.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.seq = 0
        self.results: dict[int, NewestResult] = {}
        self.models: dict[str, None] = {}
        """Each once, in the order of their first replies."""
        self.hear(entries)

    def hear(self, entries: Iterable[Entry]) -> None:
        """Take up the entries that follow."""
        for entry in entries:
            if entry.seq <= self.seq:  # somebody else has read it meanwhile
                continue
            match entry.decoded() if entry.kind in _HEARD else None:
                case ToolReturned(result=result):
                    self.results[result.step] = _newest(result)
                case ModelReplied(model=model):
                    self.models[model] = None
            self.seq = entry.seq


_HEARD = frozenset({ToolReturned.__name__, ModelReplied.__name__})


def _newest(result: ToolResult) -> NewestResult:
    return NewestResult(
        tool=result.tool,
        attempt=result.attempt,
        status=result.status,
        summary=summary_of(result),
        error=None if result.status == "ok" else result.error,
        execution=execution_of(result),
    )
