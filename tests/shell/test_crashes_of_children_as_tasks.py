"""A crash at every point of a step whose tasks are runs: each runs once, and what it leaves behind comes home."""

from dataclasses import replace
from typing import Any

from agent_service.core.brief import Continuations
from agent_service.core.phases import Next, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.journal import flaw_in_chain
from schemas import agent_tool
from schemas.events import ToolRequest
from tests.shell.test_crashes_among_people import Course, act
from tests.shell.test_crashes_while_gathering import SEEK, SHELF, answered, continuing
from tests.shell.world import APPEND, POLICY, World

ONCE = Continuations(max_plugin_continuations=1)
BOTH: list[dict[str, Any]] = [
    {"id": "a", "action": "plugin", "plugin": "agent", "input": "append one"},
    {"id": "b", "action": "plugin", "plugin": "agent", "input": "append two"},
    {"id": "c", "action": "plugin", "plugin": "agent", "input": "compare", "depends_on": ["a", "b"]},
]


def seeks_or_appends(state: RunState) -> Next | Verdict:
    """The run that is asked for seeks, its children append a line."""
    if state.completed:
        return Verdict.DONE
    return act("append") if state.brief.depth else act("seek")


def asks_three(request: ToolRequest) -> dict[str, Any]:
    if request.tool != "seek":
        return {}
    return answered(request) if request.task else continuing({"action": "multi-step", "tasks": BOTH})


def asks_too_much(request: ToolRequest) -> dict[str, Any]:
    """As three agents, but there is a task beside them that asks for more than the step may gather."""
    more = {"action": "retrieve", "query": "more"}
    if request.tool == "knowledge":
        return continuing(more)
    asked = continuing({"action": "multi-step", "tasks": [*BOTH, {"id": "d", **more}]})
    return asked if request.tool == "seek" else {}


def a_family(plays: Any) -> World:
    limits = replace(POLICY.defaults, max_depth=1, max_steps=40, continuations=ONCE)
    tools = (SEEK, SHELF, APPEND, agent_tool.offer())
    world = World(policy=replace(POLICY, defaults=limits), tools=tools, mind=Course)
    assert isinstance(world.mind, Course)
    world.mind.chooses, world.gateway.plays = seeks_or_appends, plays
    world.start("compare two lines")
    return world


async def states_of(world: World) -> list[RunState]:
    """All runs, once it is seen to that nothing of them is left to be done."""
    family = await world.family()
    for state in family:
        assert state.final
        assert (state.given_up, state.pendings) == ((), ())
        assert flaw_in_chain(await world.store.entries(state.run_id)) is None
    assert set(world.gateway.executed.values()) == {1}
    world.faulty.write_told()
    assert await world.store.untold(100) == []
    return family


async def points_of(plays: Any) -> int:
    world = a_family(plays)
    world.faults.strike_at(None)
    await world.until_quiet()
    return world.faults.passed


async def test_children_that_are_tasks_run_once_each_and_all_they_brought_goes_to_the_tool() -> None:
    for point in range(1, await points_of(asks_three) + 1):
        world = a_family(asks_three)
        world.faults.strike_at(point)
        await world.until_quiet()
        family = await states_of(world)
        assert [state.status for state in family] == [Status.DONE] * 4
        assert family[0].completed[0].summary == "a:ok b:ok c:ok"
        assert family[0].spent.child_steps == 3


async def test_where_a_step_may_gather_no_more_its_children_end_and_what_they_spent_is_counted() -> None:
    for point in range(1, await points_of(asks_too_much) + 1):
        world = a_family(asks_too_much)
        world.faults.strike_at(point)
        await world.until_quiet()
        first, *others = await states_of(world)
        assert first.completed[0].status == "budget"
        assert len(others) == 2
        assert first.spent.calls == first.calls + sum(state.spent.calls for state in others)
