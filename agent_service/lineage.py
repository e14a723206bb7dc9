"""How deep a run is, by what its start says of where it comes from. Never less than its parent and one. Pure."""

from collections.abc import Mapping

from pydantic import JsonValue

from agent_service.core.children import DEPTH
from agent_service.core.limits import LimitRefused
from agent_service.core.state import RunState
from schemas.events import AgenticStart


def depth_of(start: AgenticStart, parent: RunState | None, *, deepest: int) -> int:
    """How many agents called each other to get to `start`; `parent`: the run that it names, as it stands here.

    Raises LimitRefused where that is not known here or has ended, and for a start that says that it is deeper than
    `deepest`. What a context tells that is no depth is taken for the deepest: such a run calls no other.
    """
    in_context = _told_in(start.context)
    told = deepest if in_context is None else in_context
    if start.parent_run_id is None and not start.depth:
        return told
    if start.parent_run_id and (parent is None or parent.final):
        raise LimitRefused("parent_run_id", f"{start.parent_run_id} is no run that is under way here")
    depth = max(start.depth, told, parent.brief.depth + 1 if parent else 0)
    if depth > deepest:
        raise LimitRefused("depth", f"would be {depth}, and agents may call each other {deepest} times in a row")
    return depth


def _told_in(context: Mapping[str, JsonValue]) -> int | None:
    told = context.get(DEPTH, 0)
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None
