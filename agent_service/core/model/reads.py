"""Parallel reads of one plan: different reads without approval, no more than the run grants. Each takes a step."""

from collections.abc import Iterator

from agent_service.core import limits
from agent_service.core.graph import grants
from agent_service.core.people import approving
from agent_service.core.phases import Action, Plan
from agent_service.core.state import RunState
from agent_service.core.tools import acting


def flaws_of(state: RunState, plan: Plan) -> tuple[str, ...]:
    return tuple(_flaws(state, plan)) if plan.also else ()


def most(state: RunState) -> int:
    granted = state.brief.limits
    left = min(granted.max_steps - limits.steps_taken(state), acting.attempts_left(state))
    return min(granted.parallel_reads, left) if left > 0 else granted.parallel_reads


def _flaws(state: RunState, plan: Plan) -> Iterator[str]:
    planned, may = len(plan.actions), most(state)
    if planned > may:
        yield f"the plan has {planned} actions, and {'one' if may == 1 else f'at most {may}'} may be planned now"
    for action in plan.actions:
        if why := _why_alone(state, action):
            yield f"{action.tool} {action.command} has to be planned alone: {why}"
    if len({acting.name_of_call(action) for action in plan.actions}) < planned:
        yield "the plan has the same action twice"


def _why_alone(state: RunState, action: Action) -> str:
    command = state.brief.command(action)
    reads = command is not None and command.tier == "read"
    if not reads and not grants.needs_one(state.brief, action.tool):
        return "it is no read"
    return approving.why_needed(state, action)
