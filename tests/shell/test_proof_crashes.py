"""A crash at every point while a claim is proved and looked at: it is proved once, refused once, and counts once."""

import pytest

from agent_service.core.phases import Framing, Met, Phase, Proof, Reflection, Verdict, Verification
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve
from agent_service.ports import Answer
from schemas import subjects
from tests.shell.mind import USAGE, Mind
from tests.shell.test_crashes import RESERVE, check_the_end, check_what_was_spent
from tests.shell.world import World

MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])


class DoubtedMind(Mind):
    """Quotes the first step, which only the journal has by then; who looks at its claim doubts an item of it."""

    def _answer(self, state: RunState, phase: Phase) -> Answer:
        if phase is Phase.FRAME:
            items, proofs = ("one", "two", "three"), (Proof(kind="step", tool="append"),) * 3
            framing = Framing(goal_statement="Append.", definition_of_done=items, proofs=proofs)
            return Answer(decision=framing, usage=USAGE, model="mind")
        if phase is Phase.VERIFY:
            found = Verification(holds=False, reason="one is not shown", doubted=("d1",))
            return Answer(decision=found, usage=USAGE, model="mind")
        if phase is Phase.REFLECT and len(state.completed) >= self.steps:
            claims = tuple(Met(item=item.id, evidence="step 1", quote="line 1") for item in state.done_items)
            done = Reflection(verdict=Verdict.DONE, summary="seen", met=claims)
            return Answer(decision=done, usage=USAGE, model="mind")
        return super()._answer(state, phase)


def a_world(reserve: Reserve | None) -> World:
    world = World(reserve=reserve, mind=DoubtedMind, verify=True)
    world.start()
    return world


async def points(reserve: Reserve | None) -> int:
    world = a_world(reserve)
    world.faults.strike_at(None)
    await world.until_quiet()
    assert "during verify" in world.faults.names
    return len(world.faults.names)


@MINDS
async def test_a_crash_at_any_point_neither_proves_nor_refuses_a_claim_twice(reserve: Reserve | None) -> None:
    for point in range(1, await points(reserve) + 1):
        world = a_world(reserve)
        world.faults.strike_at(point)
        await world.until_quiet()
        assert world.crashes == 1, f"point {point} was not reached"
        await check_the_end(world)
        await check_what_was_spent(world)
        state = await world.state()
        assert (state.unverified, state.spent.calls) == (1, 6)
        (completed,) = world.bus.events(subjects.COMPLETED)
        assert [item["quotes"] for item in completed["definition_of_done"]] == [["line 1"]] * 3
