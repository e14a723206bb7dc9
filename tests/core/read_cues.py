"""What several reads of one plan add to the cues."""

from typing import Any

from agent_service.core.phases import Action, Plan
from tests.core.cues import a_planning_run, replies
from tests.core.script import Cue, Script


def several(*tools: str, **arguments: Any) -> Plan:
    """A plan of one action for each of `tools`, no two of them the same."""
    numbered = enumerate(tools, start=1)
    actions = [Action(tool=tool, command="handle", arguments={"page": n} | arguments) for n, tool in numbered]
    return Plan(action=actions[0], also=tuple(actions[1:]), rationale="the halves are independent")


def plans_several(*tools: str) -> Cue:
    return replies(several(*tools))


def a_run_that_may_read(most: int = 3, **limits: Any) -> Script:
    return a_planning_run(parallel_reads=most, **limits)


def a_run_that_reads(count: int = 3, **limits: Any) -> Script:
    """As many pages are asked for side by side."""
    return a_run_that_may_read(count, **limits) >> plans_several(*["fetch"] * count)
