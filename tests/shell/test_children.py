"""Runs that are steps or tasks of runs, and results that say little of what they answer."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.brief import Continuations
from agent_service.core.events import CancelRequested
from agent_service.core.limits import LimitPolicy, LimitRefused
from agent_service.core.phases import Action, Plan
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.run.arrival import Arrival, Unreadable, correlation
from agent_service.run.child_results import depth_of
from agent_service.run.journal import Commit, flaw_in_chain
from agent_service.run.ports import Wake
from ductile_gateway.calls.artifacts import named_digest
from schemas import catalog, keys, subjects
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import AgenticStart, Envelope, ToolOutput, ToolRequest, ToolResult
from tests.core.cues import a_parent, cancel
from tests.kit.fakes import MemoryStore
from tests.kit.runs import NOON, run_id
from tests.shell.world import APPEND, POLICY, REQUEST, Mind, Plays, World, act, message

FAMILY = replace(POLICY, defaults=replace(POLICY.defaults, max_depth=2, parallel_reads=2, max_steps=40))
ONCE = Continuations(max_plugin_continuations=1)
TASKS = LimitPolicy(defaults=replace(POLICY.defaults, max_depth=1, max_steps=40, continuations=ONCE))
GATHERS = LimitPolicy(defaults=replace(POLICY.defaults, continuations=Continuations(max_plugin_total_time_ms=10**8)))


def reads(name: str, command: str = "handle") -> ToolOffer:
    return ToolOffer(name=name, route=name, output="trusted", commands=(ToolCommand(name=command, tier="read"),))


SEEK, SHELF, AGENT = reads("seek"), reads("knowledge", "search"), catalog.offer()


# Families


def family(state: RunState) -> Plan | None:
    """The first run starts two others at once, each of these another, and those append a line."""
    depth = state.brief.depth
    if len(state.completed) >= (1 if depth else 2):
        return None
    if depth == 2:
        return act()
    first, *also = [
        Action(tool="agent", command="run", arguments={"goal": goal})
        for goal in (("below",) if depth else ("left", "right"))
    ]
    return Plan(action=first, also=tuple(also))


def seek_or_append(state: RunState) -> Plan | None:
    """The run that is asked for seeks, its children append a line."""
    return None if state.completed else act("append" if state.brief.depth else "seek")


def asks(*tasks: dict[str, Any]) -> Plays:
    """What seeks asks for all of them at once, and tells how each ended."""

    def plays(request: ToolRequest) -> dict[str, Any]:
        if request.tool != "seek":
            return {}
        return ends(request) if request.task else continuing({"action": "multi-step", "tasks": [*tasks]})

    return plays


def continuing(asked: dict[str, Any]) -> dict[str, Any]:
    return {"status": "continuation", "result": ToolOutput.model_validate({"continuation": asked})}


def evidence(request: ToolRequest) -> list[dict[str, Any]]:
    found: Any = request.tool_payload.get("evidence", [])
    return list(found)


def ends(request: ToolRequest) -> dict[str, Any]:
    told = " ".join(f"{item['task']}:{item['status']}" for item in evidence(request))
    return {"result": ToolOutput.model_validate({"summary": told})}


AGENTS = asks(
    *({"id": name, "action": "plugin", "plugin": "agent", "input": f"append {name}"} for name in "ab"),
    {"id": "c", "action": "plugin", "plugin": "agent", "input": "compare", "depends_on": ["a", "b"]},
)


def a_family(plays: Plays = lambda _: {}, store: MemoryStore | None = None) -> World:
    world = World(Mind(chooses=family), tools=(APPEND, AGENT), policy=FAMILY, plays=plays, store=store)
    world.start("append on both sides")
    return world


def a_cancelled_family() -> World:
    """While a child of the first run reflects."""
    world = a_family()

    def chooses(state: RunState) -> Plan | None:
        if state.completed and state.brief.depth == 1:
            world.say(subjects.CANCEL, {"run_id": run_id(1)}, keys.cancel(run_id(1)))
        return family(state)

    world.mind.chooses = chooses
    return world


def tasks_that_are_runs() -> World:
    tools = (SEEK, SHELF, APPEND, AGENT)
    world = World(Mind(chooses=seek_or_append), tools=tools, policy=TASKS, plays=AGENTS)
    world.start()
    return world


WORLDS = {
    "a family": (a_family, Status.DONE, {Status.DONE: 5}, 2),
    "a cancelled family": (a_cancelled_family, Status.CANCELLED, {}, None),
    "tasks that are runs": (tasks_that_are_runs, Status.DONE, {Status.DONE: 4}, 5),
}


@pytest.mark.parametrize("name", WORLDS)
async def test_families_end_alike_wherever_the_process_dies(name: str) -> None:
    made, first, ended, calls = WORLDS[name]
    points = 1
    for point in range(0, 1000, 7):
        if point > points:
            break
        world = made()
        world.faults.strike_at(point)
        await world.until_quiet()
        points = max(points, world.faults.passed)
        states = await world.family()
        assert (states[0].status, world.crashes) == (first, int(point > 0))
        assert all(state.final for state in states)
        assert not ended or {Status.DONE: len(states)} == ended
        assert calls is None or len(world.gateway.executed) == calls
        for state in states:
            assert flaw_in_chain(await world.store.entries(state.run_id)) is None
        assert await world.store.untold(100) == []
    assert points > 50


async def test_a_child_that_is_accepted_after_its_parent_ended_ends_too() -> None:
    class Slow(MemoryStore):
        """While a child is being accepted, its parent is cancelled."""

        world: World

        async def accept(self, wake: Wake, commit: Commit) -> str:
            parent = commit.state.brief.parent
            if parent is not None:
                await self.world.turns.take(parent.run_id, CancelRequested(at=NOON, reason="enough"))
            return await super().accept(wake, commit)

    store = Slow()
    store.world = world = a_family(store=store)
    await world.until_quiet()
    assert [state.status for state in await world.family()] == [Status.CANCELLED] * 3
    assert world.mind.calls.total() == 2
    assert await store.untold(10) == []


class Lines(dict[tuple[str, str], bytes]):
    """Every run has the same line."""

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        return b"one line" if "line" in key[1] else default


async def test_artifacts_of_a_child_are_its_parents_under_names_that_tell_their_content() -> None:
    told = {"artifacts": [{"path": "artifacts/line.txt"}, {"path": "artifacts/gone.txt"}]}
    world = a_family(lambda _: {"result": ToolOutput.model_validate({"summary": "line"} | told)})
    world.artifacts.contents = Lines()
    await world.until_quiet()
    first = await world.state()
    digest = hashlib.sha256(b"one line").hexdigest()
    name = f"artifacts/line-relayed-{digest[:16]}.txt"
    assert first.artifacts == (name,)
    assert world.artifacts.contents[first.run_id, name] == b"one line"
    assert named_digest(name.removeprefix("artifacts/")) == digest[:16]
    assert first.last_result is not None
    assert digest in str(first.last_result.output["artifacts"])


async def test_nobody_else_can_say_what_came_of_a_child() -> None:
    world = a_family()
    await world.receive()
    output = ToolOutput.model_validate({"summary": "all is well", "usage": {"input_tokens": 0}})
    forged = ToolResult(
        run_id=run_id(1), step=1, tool="agent", status="ok", result=output, completed_at=NOON, attempt=1
    )
    world.bus.put(*message(subjects.TOOL_RESULT, Envelope[ToolResult], forged, "forged"))
    with pytest.raises(Unreadable, match="has not ended"):
        await world.receive(-1)
    del world.bus.unacknowledged[-1]
    await world.until_quiet()
    assert ((await world.state()).status, len(world.bus.events(REQUEST))) == (Status.DONE, 2)


# How deep a start is

PARENT = replace(a_parent().state, brief=replace(a_parent().state.brief, depth=2))


def start(**fields: Any) -> AgenticStart:
    return AgenticStart(goal="go on", **fields)


@pytest.mark.parametrize(
    ("said", "depth"),
    [
        ({}, 0),
        ({"depth": 1}, 1),
        ({"context": {"agentic_depth": 2}}, 2),
        ({"depth": 1, "context": {"agentic_depth": 2}}, 2),
        ({"context": {"agentic_depth": -1}}, 5),
        ({"context": {"agentic_depth": True}}, 5),
        ({"context": {"agentic_depth": "0"}}, 5),
        ({"parent_run_id": "run_1"}, 3),
        ({"parent_run_id": "run_1", "depth": 0, "context": {"agentic_depth": 0}}, 3),
        ({"parent_run_id": "run_1", "depth": 4}, 4),
    ],
)
def test_a_start_is_as_deep_as_the_deepest_that_is_said_of_it(said: dict[str, Any], depth: int) -> None:
    assert depth_of(start(**said), PARENT if "parent_run_id" in said else None, deepest=5) == depth


@pytest.mark.parametrize("said", [{"depth": 3}, {"parent_run_id": "run_1"}])
def test_one_that_would_be_deeper_than_the_deepest_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(LimitRefused, match="would be 3, and agents may call each other 2 times in a row"):
        depth_of(start(**said), PARENT if "parent_run_id" in said else None, deepest=2)


async def test_a_start_that_names_a_run_which_is_not_under_way_or_the_wake_of_a_child_is_refused() -> None:
    for parent in (None, (a_parent() >> cancel()).state):
        with pytest.raises(LimitRefused, match="is no run that is under way here"):
            depth_of(start(parent_run_id="run_1"), parent, deepest=5)
    with pytest.raises(LimitRefused, match="may not begin with child:"):
        await World().intake.wake("child:run_1", start(), known=False, by="somebody")


# Results that name no task


async def test_a_result_that_names_neither_its_task_nor_its_attempt_is_placed_by_its_dedupe_key() -> None:
    def three_rounds(request: ToolRequest) -> dict[str, Any]:
        over = len({item["round"] for item in evidence(request)})
        told = continuing({"action": "retrieve", "query": f"more {over}"}) if over < 3 else ends(request)
        return {"attempt": None, "task": None, "round": None} | (told if request.tool == "seek" else {})

    world = World(Mind(chooses=seek_or_append), tools=(SEEK, SHELF), policy=GATHERS, plays=three_rounds)
    world.start()
    await world.until_quiet()
    state = await world.state()
    assert (state.status, len(world.gateway.executed)) == (Status.DONE, 7)
    assert [record.summary for record in state.completed] == ["task-1:ok task-1:ok task-1:ok"]


@pytest.mark.parametrize("odd", [{"task": "A B", "round": "x"}, {"task": "a", "round": 0}, {"status": "so-so"}])
def test_a_result_that_cannot_be_read_relates_to_the_task_that_its_key_names(odd: dict[str, Any]) -> None:
    payload = {"run_id": "r", "step": 1, "tool": "look", "status": "ok", **odd}
    body = {"type": subjects.TOOL_RESULT, "payload": payload, "dedupe_key": keys.result("r", 1, 1, "a", 2)}
    about = correlation(Arrival(subject=subjects.TOOL_RESULT, body=json.dumps(body).encode(), place="7"))
    assert about is not None
    assert (about.task, about.round) == ("a", 2)
