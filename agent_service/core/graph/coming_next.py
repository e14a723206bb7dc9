"""Scheduler of sub-requests: which one is sent next, and why one may not be sent.

A task is sent once its dependencies came and there is room; its asker is asked again once all came. Refusals,
approvals and later words of people hold as for a plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from agent_service.core.graph import gathered, grants
from agent_service.core.people import approving
from agent_service.core.phases import Action
from agent_service.core.state import RunState, replace
from agent_service.core.tools import doubting
from agent_service.core.tools.attempts import Gathering, Task, asker_of
from agent_service.core.tools.flights import flights, gatherings
from agent_service.core.waiting import Status

OVERRULED = "overruled"
UNHEARD = "it is not carried out, because a person said something that the model has not been told yet"

Name = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that nothing has to come before. `known_as`: step, name and round; `action`: as it is sent."""

    gathering: Gathering
    task: Task
    known_as: Name
    action: Action


def next_of(state: RunState, passed: set[Name], *, begins: bool) -> Ready | None:
    """Not yet passed requests, in the order of steps and tasks, that can be sent or never can be. `begins`: whether
    anything may be sent now. Requests without room are skipped: with a hundred tasks they are most.
    """
    sent = {flight.pending.name[:2] for flight in flights(state.waiting)}
    came = {one.name: one.status for one in state.evidence}
    for gathering in gatherings(state.waiting):
        for task in () if gathering.stopped else gathering.tasks:
            name = _name_of(gathering, task)
            if name[:2] in sent or name in passed or not _nothing_before(gathering, task, came):
                continue
            if _has_failed_before(gathering, task, came) or (begins and _has_room(state, task.action.tool)):
                return ready_for(state, gathering, task, name)
    return None


def _name_of(gathering: Gathering, task: Task) -> Name:
    asked_in = gathering.round + 1 if task.asks else task.round
    return gathering.step, task.again if task.asks else task.id, asked_in


def _nothing_before(gathering: Gathering, task: Task, came: Mapping[Name, str]) -> bool:
    if task.asks:
        return not any(other.id and asker_of(other.id) == task.id for other in gathering.tasks)
    if not task.id:  # the step's own request, which was sent before there was anything to gather
        return False
    needed = _needed(gathering, task, came)
    return all(needed) or "error" in needed


def _has_failed_before(gathering: Gathering, task: Task, came: Mapping[Name, str]) -> bool:
    return not task.asks and "error" in _needed(gathering, task, came)


def _needed(gathering: Gathering, task: Task, came: Mapping[Name, str]) -> list[str | None]:
    return [came.get((gathering.step, need, task.round)) for need in task.needs]


def ready_for(state: RunState, gathering: Gathering, task: Task, name: Name) -> Ready:
    given = gathered.given(state.evidence, gathering.step, task, name[1:], state.brief.limits.continuations)
    return Ready(gathering, task, name, replace(task.action, given=given))


def flaw_of(state: RunState, ready: Ready) -> tuple[str, str] | None:
    asked_for = (one for one in state.evidence if one.step == ready.gathering.step and one.round == ready.task.round)
    failed = [one.task for one in asked_for if one.status == "error" and one.task in ready.task.needs]
    if failed and not ready.task.asks:
        return "dependency", f"it depends on {', '.join(failed)}, which failed"
    if why := _lacking(state, ready):
        return "budget", why
    if (size := gathered.size_of(ready.action.payload)) > gathered.MAX_SENT:
        return "too_large", f"its arguments have {size} bytes with what is handed on, and {gathered.MAX_SENT} are sent"
    if flaws := (*approving.flaws_of(state, ready.action), *doubting.flaws_of(state, ready.action)):
        return "not_approved", "; ".join(flaws)
    command = state.brief.command(ready.action)
    writes = command is None or command.tier == "write"
    return (OVERRULED, UNHEARD) if writes and is_unheard(state, ready.gathering) else None


def _lacking(state: RunState, ready: Ready) -> str:
    if not grants.needs_one(state.brief, ready.task.action.tool):
        return ""
    return grants.lacking(state, (ready.task.action,), among=grants.to_come(state, ready.gathering))


def may_begin(state: RunState, at: datetime) -> bool:
    return state.status is not Status.PAUSED and at < state.brief.limits.deadline_at


def _has_room(state: RunState, tool: str) -> bool:
    granted, busy = state.brief.limits.continuations, [one.pending.action.tool for one in flights(state.waiting)]
    most = min(granted.parallel_per_tool, grants.most_at_once(state.brief, tool))
    return len(busy) < granted.parallel and busy.count(tool) < most


def is_unheard(state: RunState, gathering: Gathering) -> bool:
    return state.heard > max(state.shown, gathering.words)
