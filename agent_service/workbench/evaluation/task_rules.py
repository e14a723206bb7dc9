"""Rules about what tools ask for before they answer, judged from what left the agent and what came back. Pure.

They say again, in their own way, what the core sees to. Each yields a line for what broke it, and where.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from agent_service.core.events import ToolReturned
from agent_service.core.state import RunState
from agent_service.workbench.evaluation.observed import Observed, Request
from schemas.continuation import AGAIN, Continuation, ContinuationInvalid, MultiStep, read
from schemas.events import ToolResult

RETRIEVED = "task-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a tool asked for. `asker`: before the names of its tasks; empty for the tool of the step."""

    at: datetime
    step: int
    asker: str
    tasks: dict[str, tuple[str, ...]]


def _tasks_wait_for_what_they_need(seen: Observed) -> Iterator[str]:
    """A task is asked for only if a tool wants it, and once all came that it depends on."""
    wanted = list(_wanted(seen))
    for request in seen.requests:
        name = request.asked.task
        if name is None or request.asks_again:
            continue
        asked_by = [
            one for one in wanted if one.step == request.asked.step and name in one.tasks and one.at <= request.at
        ]
        if not asked_by:
            yield f"{request} was asked for by nobody"
        for need in asked_by[-1].tasks[name] if asked_by else ():
            if not any(_answers(result, request, need) for result in _results(seen)):
                yield f"{request} was sent before {need} had come"


def _tools_are_asked_again_once_all_came(seen: Observed) -> Iterator[str]:
    """What a tool is given when it is asked again is all that it asked for, each task once, in the order of rounds."""
    wanted = list(_wanted(seen))
    for request in (request for request in seen.requests if request.asks_again):
        asker = (request.asked.task or "").removesuffix(AGAIN)
        mine = [one for one in wanted if (one.step, one.asker) == (request.asked.step, asker) and one.at <= request.at]
        given = Counter(_names(request, asker))
        missing = [name for one in mine for name in one.tasks if not given[name]]
        if not mine or missing:
            yield f"{request} was sent, and {', '.join(missing) or 'what it asked for'} is not in its evidence"
        if sum(given.values()) > sum(len(one.tasks) for one in mine):
            yield f"{request} has more evidence than was asked for"


def _what_a_step_may_gather_is_bounded(seen: Observed) -> Iterator[str]:
    if seen.state is None:
        return
    granted, began = seen.state.brief.limits.continuations, dict[int, datetime]()
    for one in _wanted(seen):
        began.setdefault(one.step, one.at)
    waited_for_people = bool(seen.state.rulings) or seen.state.heard > 0
    for request in (request for request in seen.requests if request.asked.task):
        if (request.asked.round or 0) > granted.max_plugin_continuations + request.asks_again:
            yield f"{request} is beyond {granted.max_plugin_continuations} continuations"
        end = began.get(request.asked.step, request.at) + timedelta(milliseconds=granted.max_plugin_total_time_ms)
        if request.at >= end and not waited_for_people:
            yield f"{request} was sent after the time in which its step may gather"
    for moment in seen.moments:
        yield from (f"entry {moment.seq}: {what}" for what in _width(moment.state))


def _width(state: RunState) -> Iterator[str]:
    granted = state.brief.limits.continuations
    tools = Counter(pending.action.tool for pending in state.pendings if pending.task)
    if tools.total() > granted.parallel:
        yield f"{tools.total()} sub-requests are under way, and {granted.parallel} may be"
    for tool, number in tools.items():
        if number > granted.parallel_per_tool:
            yield f"{number} of {tool} are under way, and {granted.parallel_per_tool} may be"


def _results(seen: Observed) -> Iterator[tuple[datetime, ToolResult]]:
    for moment in seen.moments:
        if isinstance(moment.event, ToolReturned):
            yield moment.event.at, moment.event.result


def _wanted(seen: Observed) -> Iterator[Wanted]:
    for at, result in _results(seen):
        if result.status == "continuation":
            asker = (result.task or AGAIN).removesuffix(AGAIN) if _is_again(result) else f"{result.task}."
            yield Wanted(at=at, step=result.step, asker=asker, tasks=_tasks(result, asker))


def _is_again(result: ToolResult) -> bool:
    return (result.task or AGAIN).rpartition(".")[2] == AGAIN


def _tasks(result: ToolResult, asker: str) -> dict[str, tuple[str, ...]]:
    """None of a continuation that cannot be read."""
    try:
        asked: Continuation = read(result.result)
    except ContinuationInvalid:
        return {}
    if not isinstance(asked, MultiStep):
        return {f"{asker}{RETRIEVED}": ()}
    return {f"{asker}{task.id}": tuple(f"{asker}{need}" for need in task.depends_on) for task in asked.tasks}


def _answers(came: tuple[datetime, ToolResult], request: Request, need: str) -> bool:
    """Whether a result is what the task `need` brought, in the end."""
    at, result = came
    named = result.step == request.asked.step and result.task in (need, f"{need}.{AGAIN}")
    return named and result.status == "ok" and at <= request.at and (result.round or 0) >= (request.asked.round or 0)


def _names(request: Request, asker: str) -> Iterator[str]:
    evidence = request.asked.tool_payload.get("evidence")
    for one in evidence if isinstance(evidence, list) else ():
        yield f"{asker}{one.get('task')}" if isinstance(one, dict) else asker


Rule = Callable[[Observed], Iterator[str]]
RULES: tuple[Rule, ...] = (
    _tasks_wait_for_what_they_need,
    _tools_are_asked_again_once_all_came,
    _what_a_step_may_gather_is_bounded,
)
