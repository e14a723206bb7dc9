"""A crash at every point of an approval, a question, a wait and a reopening: nothing is asked twice, nothing is run
twice, and no answer is lost."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.phases import Action, Ask, Framing, Met, Next, Phase, Plan, Reflection, Verdict, Wait
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve, Status
from agent_service.journal import flaw_in_chain
from agent_service.ports import Answer
from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from tests.kit.runs import NOON
from tests.shell.mind import USAGE, Mind
from tests.shell.world import APPEND, Person, World

BROWSE = ToolOffer(
    name="browse", route="browse", commands=(ToolCommand(name="handle", tier="read"),), output="untrusted"
)
FRAMED = Framing(goal_statement="Append.", definition_of_done=("one", "two", "three"))
PATIENT = LimitPolicy(defaults=Limits(deadline_at=NOON, approval_s=120.0))
RESERVE = Reserve(tokens=700, cost_usd=0.25)


def act(tool: str) -> Plan:
    return Plan(action=Action(tool=tool, command="handle", arguments={"text": "hello"}))


class Course(Mind):
    """Does what `chooses` says by where the run stands: what comes next, a verdict, or a framing by default."""

    chooses: Callable[[RunState], Next | Verdict]

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        chosen = self.chooses(state)
        if phase is Phase.FRAME:
            return Answer(decision=FRAMED, usage=USAGE, model="mind")
        if phase is Phase.PLAN:
            assert not isinstance(chosen, Verdict)
            return Answer(decision=chosen, usage=USAGE, model="mind")
        if isinstance(chosen, Verdict):
            good = [record.step for record in state.completed if record.status == "ok"]
            met = tuple(Met(item=item.id, evidence=f"step:{good[-1]}") for item in state.done_items) if good else ()
            return Answer(decision=Reflection(verdict=chosen, summary="seen", met=met), usage=USAGE, model="mind")
        told = Reflection(verdict=Verdict.CONTINUE, summary="seen")
        return Answer(decision=told, plan=chosen, usage=USAGE, model="mind")


def nobody(_: dict[str, Any]) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Story:
    """What the model does, what a person says to it, and what is to be left in the end."""

    chooses: Callable[[RunState], Next | Verdict]
    says: Person = nobody
    asked: tuple[str, ...] = ()
    """The kinds of what was asked of people, in order."""
    ran: dict[str, int] = field(default_factory=dict)
    """How often each tool ran."""
    said: tuple[str, ...] = ()
    """What the run has heard, in order."""
    loses: tuple[int, ...] = ()
    """Steps whose outcome is lost."""
    escalated: int = 0


def browse_and_append(state: RunState) -> Next | Verdict:
    if not state.completed:
        return act("browse")
    return act("append") if len(state.completed) < 2 and not state.rulings else Verdict.DONE


def approves(told: dict[str, Any]) -> dict[str, Any] | None:
    name = told.get("arguments_hash")
    return {"signal_id": f"yes-{name}", "kind": "approve", "arguments_hash": name} if name else None


def rejects(told: dict[str, Any]) -> dict[str, Any] | None:
    ruled = approves(told)
    return {**ruled, "kind": "reject", "message": "not now"} if ruled else None


def ask_and_append(state: RunState) -> Next | Verdict:
    if not state.messages:
        return Ask(question="Which?", choices=("a", "b"))
    return Verdict.DONE if state.completed else act("append")


def answers(told: dict[str, Any]) -> dict[str, Any] | None:
    return {"signal_id": "answer", "kind": "answer", "message": "a"} if told.get("question") else None


def append_wait_and_append(state: RunState) -> Next | Verdict:
    if len(state.completed) == 2:
        return Verdict.DONE
    return act("append") if state.waited_at_step == len(state.completed) else Wait(why="later", seconds=60.0)


def escalate_and_append(state: RunState) -> Next | Verdict:
    if not state.completed:
        return act("append")
    return Verdict.DONE if state.messages else Verdict.ESCALATE


def reopens(told: dict[str, Any]) -> dict[str, Any] | None:
    return {"signal_id": "reopen", "kind": "answer", "message": "go on"} if "class" in told else None


def append_until_it_is_known(state: RunState) -> Next | Verdict:
    return Verdict.DONE if any(record.status == "ok" for record in state.completed) else act("append")


def it_did_not_run(told: dict[str, Any]) -> dict[str, Any] | None:
    said = {"signal_id": "no", "kind": "answer", "outcome": "did_not_run", "message": "it is not there"}
    return said if told.get("kind") == "in_doubt" else None


STORIES = {
    "approval": Story(chooses=browse_and_append, says=approves, asked=("approval",), ran={"browse": 1, "append": 1}),
    "refusal": Story(
        chooses=browse_and_append, says=rejects, asked=("approval",), ran={"browse": 1}, said=("not now",)
    ),
    "expiry": Story(chooses=browse_and_append, asked=("approval",), ran={"browse": 1}),
    "question": Story(chooses=ask_and_append, says=answers, asked=("question",), ran={"append": 1}, said=("a",)),
    "wait": Story(chooses=append_wait_and_append, ran={"append": 2}),
    "reopening": Story(chooses=escalate_and_append, says=reopens, ran={"append": 1}, said=("go on",), escalated=1),
    "in doubt": Story(
        chooses=append_until_it_is_known,
        says=it_did_not_run,
        asked=("in_doubt",),
        ran={"append": 2},
        said=("it is not there",),
        loses=(1,),
        escalated=1,
    ),
}


def a_world(story: Story, reserve: Reserve | None) -> World:
    world = World(reserve=reserve, tools=(BROWSE, APPEND), mind=Course, policy=PATIENT)
    assert isinstance(world.mind, Course)
    world.mind.chooses, world.person = story.chooses, story.says
    world.gateway.losing.update(story.loses)
    world.start(max_steps=5)
    return world


async def check(world: World, story: Story) -> None:
    state = await world.state()
    assert state.status is Status.DONE
    assert [asked["kind"] for asked in world.bus.events(subjects.WAITING)] == list(story.asked)
    ran = [call.split(":")[-2] for call in world.gateway.executed]
    assert {tool: ran.count(tool) for tool in ran} == story.ran
    assert set(world.gateway.executed.values()) <= {1}
    assert state.messages == story.said
    assert len(world.bus.events(subjects.ESCALATED)) == len(world.bus.events(subjects.REOPENED)) == story.escalated
    assert len(world.bus.events(subjects.COMPLETED)) == 1
    assert flaw_in_chain(await world.store.entries(state.run_id)) is None
    world.faulty.write_told()
    assert await world.store.untold(100) == []


async def points(story: Story, reserve: Reserve | None) -> int:
    world = a_world(story, reserve)
    world.faults.strike_at(None)
    await world.until_ended()
    await check(world, story)
    return len(world.faults.names)


@pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
@pytest.mark.parametrize("name", STORIES)
async def test_a_crash_at_any_point_asks_nothing_twice_runs_nothing_twice_and_loses_no_answer(
    name: str, reserve: Reserve | None
) -> None:
    story = STORIES[name]
    for point in range(1, await points(story, reserve) + 1):
        world = a_world(story, reserve)
        world.faults.strike_at(point)
        await world.until_ended()
        assert world.crashes == 1, f"point {point} was not reached"
        await check(world, story)


@pytest.mark.parametrize("name", STORIES)
async def test_a_second_crash_soon_after_the_first_only_delays_what_people_say(name: str) -> None:
    story = STORIES[name]
    for point, again in product(range(1, await points(story, None) + 1, 3), (1, 2, 4, 7)):
        world = a_world(story, None)
        world.faults.strike_at(point)
        world.next_strike = again
        await world.until_ended()
        await check(world, story)


@pytest.mark.parametrize("name", STORIES)
async def test_everything_delivered_again_changes_nothing(name: str) -> None:
    world = a_world(STORIES[name], None)
    await world.until_ended()
    before = await world.state()
    world.bus.unacknowledged.extend(world.bus.published.values())
    await world.until_quiet()
    assert await world.state() == before
    await check(world, STORIES[name])
