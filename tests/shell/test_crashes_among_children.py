"""A crash at every point of a family of runs: each is started, finished and told of once, and none is left behind."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent_service.arrival import Unreadable
from agent_service.core.events import CancelRequested
from agent_service.core.phases import Action, Phase, Plan
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve, Status
from agent_service.journal import Commit, flaw_in_chain
from agent_service.ports import Answer, Wake
from ductile_gateway.calls.artifacts import named_digest
from schemas import agent_tool, keys, subjects
from schemas.events import Cancel, Envelope, ToolOutput, ToolResult
from tests.kit.fakes import MemoryStore
from tests.kit.runs import NOON
from tests.shell.mind import Mind
from tests.shell.world import APPEND, POLICY, World

DEEPEST = 2
FAMILY = replace(POLICY, defaults=replace(POLICY.defaults, max_depth=DEEPEST, parallel_reads=2, max_steps=40))
RESERVE = Reserve(tokens=700, cost_usd=0.25)
MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
RUNS = 1 + 2 + 2


class Parents(Mind):
    """The first run starts two others at once, each of these another, and those append a line: one step each.

    `reflects`: what happens at that depth while a reflection is awaited.
    """

    reflects: Mapping[int, Callable[[], None]] = {}

    def _plan(self, state: RunState) -> Plan:
        depth = state.brief.depth
        if depth == DEEPEST:
            return Plan(action=Action(tool="append", command="handle", arguments={"n": 1}))
        goals = ("left", "right") if depth == 0 else ("below",)
        actions = [Action(tool="agent", command="run", arguments={"goal": goal}) for goal in goals]
        return Plan(action=actions[0], also=tuple(actions[1:]))

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        self.steps = 2 if state.brief.depth == 0 else 1
        if phase is Phase.REFLECT and state.brief.depth in self.reflects:
            self.reflects[state.brief.depth]()
        return super()._answer(state, phase)


class Family(World):
    def __init__(self, reserve: Reserve | None = None, store: MemoryStore | None = None) -> None:
        tools = (APPEND, agent_tool.offer())
        super().__init__(reserve=reserve, policy=FAMILY, tools=tools, mind=Parents, store=store)
        self.start("append on both sides")

    def stop(self) -> None:
        """Somebody cancels the first run, once."""
        first = next(delivery for key, delivery in self.bus.published.items() if key.endswith(":step:1:request"))
        run_id = Envelope[Any].model_validate_json(first.body).payload["run_id"]
        cancelled = Envelope[Cancel](type=subjects.CANCEL, payload=Cancel(run_id=run_id)).body()
        self.bus.put(subjects.CANCEL, cancelled, keys.cancel(run_id))


async def points_of(family: Family) -> int:
    family.faults.strike_at(None)
    await family.until_quiet()
    return family.faults.passed


async def check_the_end(world: Family) -> None:
    family = await world.family()
    assert [state.status for state in family] == [Status.DONE] * RUNS
    assert set(world.gateway.executed.values()) == {1}
    assert len(world.gateway.executed) == 2
    assert len(world.bus.events(subjects.COMPLETED)) == RUNS
    first = family[0]
    assert first.spent.child_steps == 4
    assert first.spent.tokens == 15 * 2 * RUNS + 15 * RUNS  # a framing, a plan and a reflection of each
    await check_that_all_is_told(world)


class Lines(dict[tuple[str, str], bytes]):
    """Every run has the same line."""

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        return b"one line" if "line" in key[1] else default


async def check_that_all_is_told(world: Family) -> None:
    for state in await world.family():
        assert flaw_in_chain(await world.store.entries(state.run_id)) is None
        assert (state.given_up, state.pendings) == ((), ())
    world.faulty.write_told()
    assert await world.store.untold(100) == []


@MINDS
async def test_a_crash_at_any_point_loses_no_run_and_starts_none_twice(reserve: Reserve | None) -> None:
    points = await points_of(Family(reserve))
    for point in range(1, points + 1):
        world = Family(reserve)
        world.faults.strike_at(point)
        await world.until_quiet()
        assert world.crashes == 1, f"point {point} was not reached"
        if reserve is None:
            await check_the_end(world)
        assert [state.status for state in await world.family()] == [Status.DONE] * RUNS


@pytest.mark.parametrize("gap", [1, 2, 4])
async def test_a_crash_while_what_was_left_is_resumed_only_delays_the_family(gap: int) -> None:
    for point in range(gap, await points_of(Family()) + 1, 7):
        world = Family()
        world.faults.strike_at(point)
        world.next_strike = gap
        await world.until_quiet()
        await check_the_end(world)


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_cancel_takes_the_whole_family_along_wherever_the_process_dies(depth: int) -> None:
    def stopped() -> Family:
        world = Family()
        world.mind.reflects = {depth: world.stop}  # type: ignore[attr-defined] # Parents
        return world

    for point in range(1, await points_of(stopped()) + 1):
        world = stopped()
        world.faults.strike_at(point)
        await world.until_quiet()
        family = await world.family()
        assert family[0].status is Status.CANCELLED
        assert all(state.final for state in family)
        await check_that_all_is_told(world)


async def test_a_child_that_is_accepted_after_its_parent_ended_ends_too() -> None:
    class Slow(MemoryStore):
        """While a child is being accepted, its parent is cancelled."""

        world: Family

        async def accept(self, wake: Wake, commit: Commit) -> str:
            parent = commit.state.brief.parent
            if parent is not None:
                await self.world.turns.take(parent.run_id, CancelRequested(at=NOON, reason="enough"))
            return await super().accept(wake, commit)

    store = Slow()
    store.world = world = Family(store=store)
    await world.until_quiet()
    family = await world.family()
    assert [state.status for state in family] == [Status.CANCELLED] * 3
    assert sum(world.mind.calls.values()) == 2
    await check_that_all_is_told(world)


async def test_nobody_else_can_say_what_came_of_a_child() -> None:
    world = Family()
    await world.intake.receive(world.arrival(0))
    (run_id,) = await world.store.queued(10)
    await world.intake.begin(run_id)
    forged = ToolResult(
        run_id=run_id,
        step=1,
        tool="agent",
        status="ok",
        result=ToolOutput.model_validate({"summary": "all is well", "usage": {"input_tokens": 0}}),
        completed_at=NOON,
        attempt=1,
    )
    world.bus.put(
        subjects.TOOL_RESULT, Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=forged).body(), "forged"
    )
    with pytest.raises(Unreadable, match="has not ended"):
        await world.intake.receive(world.arrival(-1))
    del world.bus.unacknowledged[-1]
    await world.until_quiet()
    await check_the_end(world)


async def test_artifacts_of_a_child_are_its_parents_under_names_that_tell_their_content() -> None:
    world = Family()
    world.gateway.told = {"artifacts": [{"path": "artifacts/line.txt"}, {"path": "artifacts/gone.txt"}]}
    world.artifacts.contents = Lines()
    await world.until_quiet()
    first, *_ = await world.family()
    digest = hashlib.sha256(b"one line").hexdigest()
    name = f"artifacts/line-relayed-{digest[:16]}.txt"
    assert first.artifacts == (name,)
    assert world.artifacts.contents[first.run_id, name] == b"one line"
    assert named_digest(name.removeprefix("artifacts/")) == digest[:16]
    assert first.last_result is not None
    assert digest in str(first.last_result.output["artifacts"])
