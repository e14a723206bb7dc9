"""Runs that start others: the family of a parent and its children, each played by itself, with what passes between."""

import json
from typing import Any

from agent_service.core.effects import CancelChild, StartChild
from agent_service.core.events import Event, ToolReturned, WakeAccepted
from agent_service.core.phases import Action, Plan
from schemas import catalog, subjects
from schemas.events import ToolResult
from tests.core.cues import BROWSE, FETCH, POST, frames, queued, replies, started
from tests.core.script import Cue, Script

AGENT = catalog.offer()
FAMILY = (FETCH, POST, BROWSE, AGENT)


def asks_agents(*goals: str, **arguments: Any) -> Cue:
    """A plan of an agent for each of `goals`, all with these further arguments."""
    actions = [Action(tool="agent", command="run", arguments={"goal": goal} | arguments) for goal in goals]
    return replies(Plan(action=actions[0], also=tuple(actions[1:])))


def a_parent(**limits: Any) -> Script:
    """It may plan its first step, an agent among others."""
    given: dict[str, Any] = {"max_depth": 1, "parallel_reads": 4, **limits}
    return queued(**given) >> started(FAMILY) >> frames()


def a_waiting_parent(goal: str = "find a name", *, call: dict[str, Any] | None = None, **limits: Any) -> Script:
    """Its first step is a child."""
    return a_parent(**limits) >> asks_agents(goal, **(call or {}))


def wakes_of(script: Script) -> list[WakeAccepted]:
    """The children that the last event started."""
    return [effect.wake for effect in script.story[-1].effects if isinstance(effect, StartChild)]


def child_of(script: Script, number: int = 0) -> Script:
    """A child that the last event started, framed and ready to plan."""
    child = Script()
    child.now = script.now
    return child >> wakes_of(script)[number] >> started(FAMILY) >> frames()


def cancelled_by(script: Script) -> list[str]:
    """The ids of the children that the last event cancelled."""
    return [effect.run_id for effect in script.story[-1].effects if isinstance(effect, CancelChild)]


def told_by(child: Script) -> ToolResult:
    """What the last event of a child told its parent."""
    return ToolResult.model_validate_json(json.dumps(child.sent(subjects.TOOL_RESULT)))


def comes_home(child: Script) -> Cue:
    """The end of a child comes to its parent, later than it was."""
    told = told_by(child)

    def cue(script: Script) -> Event:
        script.now = max(script.now, child.now)
        return ToolReturned(at=script.now, result=told)

    return cue
