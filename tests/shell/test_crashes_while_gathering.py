"""A crash at every point of a step that continues: three rounds, six tasks of which one writes, an approval among them,
a pause and a reopening in their middle. Nothing is asked of a tool twice, and what comes of it is the same."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from agent_service.core.brief import Continuations, Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.phases import Action, Next, Plan, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve, Status
from agent_service.journal import flaw_in_chain, rehearse
from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import ToolError, ToolOutput, ToolRequest
from tests.kit.runs import NOON
from tests.shell.test_crashes_among_people import Course, act, approves, nobody, rejects
from tests.shell.world import APPEND, Person, World

SEEK = ToolOffer(name="seek", output="trusted", route="seek", commands=(ToolCommand(name="handle", tier="read"),))
SHELF = ToolOffer(
    name="knowledge", output="trusted", route="shelf", commands=(ToolCommand(name="search", tier="read"),)
)
STRANGE = SHELF.model_copy(update={"output": "untrusted"})
PATIENT = Continuations(max_plugin_total_time_ms=10**8)
LIMITS = Limits(deadline_at=NOON, approval_s=120.0, continuations=PATIENT, parallel_reads=2, on_budget="pause")
RESERVE = Reserve(tokens=700, cost_usd=0.25)

GRAPH: list[dict[str, Any]] = [
    {"id": "a", "action": "retrieve", "query": "a"},
    {"id": "b", "action": "retrieve", "query": "b"},
    {"id": "c", "action": "plugin", "plugin": "append", "input": {"text": "c"}, "depends_on": ["a"]},
    {"id": "d", "action": "retrieve", "query": "d", "depends_on": ["b"]},
    {"id": "e", "action": "retrieve", "query": "e", "depends_on": ["a", "b"]},
    {"id": "f", "action": "retrieve", "query": "f", "depends_on": ["c", "d", "e"]},
]


def continuing(asked: dict[str, Any]) -> dict[str, Any]:
    return {"status": "continuation", "result": ToolOutput.model_validate({"continuation": asked})}


def told(request: ToolRequest) -> list[dict[str, Any]]:
    evidence: Any = request.tool_payload.get("evidence", [])
    return list(evidence)


def answered(request: ToolRequest) -> dict[str, Any]:
    """What the step's tool makes of its evidence: the tasks in their order, each with what came of it."""
    ends = " ".join(f"{item['task']}:{item['status']}" for item in told(request))
    return {"result": ToolOutput.model_validate({"summary": ends})}


def three_rounds(request: ToolRequest) -> dict[str, Any]:
    if request.tool != "seek":
        return {}
    over = len({item["round"] for item in told(request)})
    return continuing({"action": "retrieve", "query": f"more {over}"}) if over < 3 else answered(request)


def six_tasks(request: ToolRequest) -> dict[str, Any]:
    if request.tool != "seek":
        return {}
    return answered(request) if request.task else continuing({"action": "multi-step", "tasks": GRAPH})


def nested(request: ToolRequest) -> dict[str, Any]:
    """As six tasks, but task d asks for something in its turn."""
    if request.tool == "knowledge" and request.task == "d":
        return continuing({"action": "retrieve", "query": "for d"})
    return six_tasks(request)


NOT_NOW = ToolError(error_class="upstream", message="not now", retryable=True)
LOST = ToolError(error_class="in_doubt", message="the receipt is lost", retryable=False)


def stumbling(request: ToolRequest) -> dict[str, Any]:
    """As six tasks, but each read fails at first."""
    if request.attempt == 1 and request.tool != "append":
        return {"status": "error", "result": None, "error": NOT_NOW}
    return six_tasks(request)


def losing(request: ToolRequest) -> dict[str, Any]:
    """As six tasks, but nobody knows what came of the write."""
    return {"status": "error", "result": None, "error": LOST} if request.tool == "append" else six_tasks(request)


def seek_once(state: RunState) -> Next | Verdict:
    return Verdict.DONE if state.completed else act("seek")


def seek_twice_at_once(state: RunState) -> Next | Verdict:
    both = [Action(tool="seek", command="handle", arguments={"page": page}) for page in (1, 2)]
    return Verdict.DONE if state.completed else Plan(action=both[0], also=(both[1],))


def more_time(told: dict[str, Any]) -> dict[str, Any] | None:
    later = {"deadline_at": NOON + timedelta(hours=1)}
    return {"signal_id": "later", "kind": "raise_budget", "constraints": later} if told.get("resumable") else None


def it_ran(told: dict[str, Any]) -> dict[str, Any] | None:
    said = {"signal_id": "yes", "kind": "answer", "outcome": "ran", "message": "it is there"}
    return said if told.get("kind") == "in_doubt" else None


def it_did_not_run(told: dict[str, Any]) -> dict[str, Any] | None:
    return {**ran, "outcome": "did_not_run"} if (ran := it_ran(told)) else None


ALL_OK = "a:ok b:ok c:ok d:ok e:ok f:ok"
NO_C = "a:ok b:ok c:error d:ok e:ok f:error"
SIX = {"seek": 2, "append": 1, "knowledge": 5}


@dataclass(frozen=True, kw_only=True)
class Story:
    """What the tools do and a person says, and what is to be left in the end."""

    plays: Callable[[ToolRequest], dict[str, Any]]
    result: str
    ran: dict[str, int]
    """How often each tool was called, attempts included."""
    chooses: Callable[[RunState], Next | Verdict] = seek_once
    says: Person = nobody
    steps: int = 1
    time: timedelta = timedelta(hours=1)
    """Until the deadline, which lets the run pause."""
    tools: tuple[ToolOffer, ...] = (SEEK, SHELF, APPEND)
    asked: tuple[str, ...] = ()
    escalated: int = 0


STORIES = {
    "three rounds": Story(plays=three_rounds, result="task-1:ok task-1:ok task-1:ok", ran={"seek": 4, "knowledge": 3}),
    "six tasks": Story(plays=six_tasks, result=ALL_OK, ran=SIX),
    "a task that continues": Story(plays=nested, result=ALL_OK, ran=SIX | {"knowledge": 7}),
    "retries": Story(plays=stumbling, result=ALL_OK, ran={"seek": 4, "append": 1, "knowledge": 10}),
    "two that continue": Story(
        plays=nested,
        result=ALL_OK,
        ran={"seek": 4, "append": 2, "knowledge": 14},
        chooses=seek_twice_at_once,
        steps=2,
    ),
    "pause": Story(
        plays=stumbling,
        result=ALL_OK,
        ran={"seek": 4, "append": 1, "knowledge": 10},
        says=more_time,
        time=timedelta(seconds=30),
        asked=("budget",),
        escalated=1,
    ),
    "approval": Story(
        plays=six_tasks, result=ALL_OK, ran=SIX, says=approves, tools=(SEEK, STRANGE, APPEND), asked=("approval",)
    ),
    "refusal": Story(
        plays=six_tasks,
        result=NO_C,
        ran={"seek": 2, "knowledge": 4},
        says=rejects,
        tools=(SEEK, STRANGE, APPEND),
        asked=("approval",),
    ),
    "expiry": Story(
        plays=six_tasks,
        result=NO_C,
        ran={"seek": 2, "knowledge": 4},
        tools=(SEEK, STRANGE, APPEND),
        asked=("approval",),
    ),
    "in doubt, it ran": Story(plays=losing, result=ALL_OK, ran=SIX, says=it_ran, asked=("in_doubt",), escalated=1),
    "in doubt, it did not run": Story(
        plays=losing,
        result=NO_C,
        ran={"seek": 2, "append": 1, "knowledge": 4},
        says=it_did_not_run,
        asked=("in_doubt",),
        escalated=1,
    ),
}


def a_world(story: Story, reserve: Reserve | None = None) -> World:
    policy = LimitPolicy(defaults=LIMITS)
    world = World(reserve=reserve, tools=story.tools, mind=Course, policy=policy)
    assert isinstance(world.mind, Course)
    world.mind.chooses, world.person, world.gateway.plays = story.chooses, story.says, story.plays
    world.start(max_steps=5, deadline_at=f"{NOON + story.time:%Y-%m-%dT%H:%M:%SZ}")
    return world


async def check(world: World, story: Story) -> None:
    state = await world.state()
    assert state.status is Status.DONE
    came = [(record.tool, record.status, record.summary) for record in state.completed]
    assert came == [("seek", "ok", story.result)] * story.steps
    assert [asked["kind"] for asked in world.bus.events(subjects.WAITING)] == list(story.asked)
    assert Counter(call.split(":")[-2] for call in world.gateway.executed) == story.ran
    assert len(world.bus.events(subjects.ESCALATED)) == story.escalated
    assert len(world.bus.events(subjects.COMPLETED)) == 1
    await check_the_journal(world)


async def check_the_journal(world: World) -> None:
    """It is whole, folds to the state that is stored, and nothing of it is left to be told."""
    state = await world.state()
    entries = await world.store.entries(state.run_id)
    assert flaw_in_chain(entries) is None
    assert [transition.state for _, transition in rehearse(entries)][-1] == state
    world.faulty.write_told()
    assert await world.store.untold(100) == []


async def points(story: Story) -> int:
    world = a_world(story)
    world.faults.strike_at(None)
    await world.until_ended()
    await check(world, story)
    return len(world.faults.names)


@pytest.mark.parametrize("name", STORIES)
async def test_a_crash_at_any_point_asks_no_tool_twice_and_loses_nothing(name: str) -> None:
    story = STORIES[name]
    for point in range(1, await points(story) + 1):
        world = a_world(story)
        world.faults.strike_at(point)
        await world.until_ended()
        assert world.crashes == 1, f"point {point} was not reached"
        await check(world, story)


@pytest.mark.parametrize("name", STORIES)
async def test_a_second_crash_soon_after_the_first_only_delays_it(name: str) -> None:
    story = STORIES[name]
    for point, again in product(range(1, await points(story) + 1, 7), (1, 3)):
        world = a_world(story)
        world.faults.strike_at(point)
        world.next_strike = again
        await world.until_ended()
        await check(world, story)


@pytest.mark.parametrize("name", STORIES)
async def test_every_result_and_word_delivered_again_changes_nothing(name: str) -> None:
    world = a_world(STORIES[name])
    await world.until_ended()
    before = await world.state()
    results = (one for one in world.bus.published.values() if one.subject != subjects.START)
    world.bus.unacknowledged.extend(results)
    await world.until_quiet()
    assert await world.state() == before
    await check(world, STORIES[name])
