"""Several gateways have one ledger: what another has begun is its own while it lives, and taken up when it is gone."""

import itertools
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from ductile_gateway.bus.ownership import BACK_WITHIN_S, AmongOthers
from ductile_gateway.calls.call import Intent, Past, ToolOutcome
from groundwork.service.errors import TryAgain
from tests.gateway.parts import NOON, FakeRunner, MemoryLedger, World, a_request, asked_for, outcomes

HERE, OTHER = "store_here", "store_other"


@dataclass
class Members:
    """`OTHER` is one while it lives; the heir of all is this gateway if it `inherits`."""

    live: frozenset[str] = frozenset({HERE, OTHER})
    inherits: bool = True
    me: str = HERE

    def heir(self, key: str) -> str:
        del key
        return HERE if self.inherits else OTHER

    def mine(self, owner: str, key: str) -> bool:
        del key
        return owner == HERE or (owner not in self.live and self.inherits)


class SharedLedger(MemoryLedger):
    """Remembers who has begun each call."""

    def __init__(self) -> None:
        super().__init__()
        self.by: dict[str, str] = {}

    async def find(self, key: str) -> Past:
        past = await super().find(key)
        return replace(past, by=self.by.get(key, HERE)) if isinstance(past, Intent) else past

    async def open_intents(self) -> list[Intent]:
        return [replace(one, by=self.by.get(one.key, HERE)) for one in await super().open_intents()]

    async def adopt(self, intent: Intent) -> None:
        self.by[intent.key] = HERE


async def held() -> None:
    """The lease is ours."""


@pytest.fixture
def members() -> Members:
    return Members()


@pytest.fixture
def world(members: Members) -> World:
    """With a runner whose calls can be found by whoever started them."""
    world = World(ledger=SharedLedger(), runner=FakeRunner())
    world.ownership = AmongOthers(members, held, clock=itertools.count(step=BACK_WITHIN_S).__next__)
    return world


async def begun_by_another(world: World, command: str) -> Any:
    asked = asked_for(a_request(command))
    intent = Intent(asked=asked, may_repeat=command == "handle", deadline_at=NOON + timedelta(seconds=60))
    await world.ledger.intend(intent)
    world.ledger.by[asked.key] = OTHER
    return asked


@pytest.mark.parametrize("command", ["handle", "save"])
async def test_a_call_that_a_living_gateway_has_begun_is_put_off(world: World, command: str) -> None:
    asked = await begun_by_another(world, command)
    with pytest.raises(TryAgain, match=OTHER):
        await world.relay().take(asked)
    assert (world.runner.executed, world.runner.resumed, world.bus.messages) == ([], [], [])


async def test_a_write_that_a_machine_had_begun_which_is_gone_is_in_doubt_and_stays_its(
    world: World, members: Members
) -> None:
    asked = await begun_by_another(world, "save")
    members.live = frozenset({HERE})
    with pytest.raises(TryAgain, match="may be back"):
        await world.relay().take(asked)
    await world.relay().take(asked)
    (result,) = world.bus.results
    assert result.error is not None
    assert (outcomes(world), OTHER in result.error.message) == (["in_doubt"], True)
    assert (world.runner.executed, world.ledger.by[asked.key]) == ([], OTHER)


async def test_a_write_that_can_be_found_from_anywhere_is_adopted_and_followed(world: World, members: Members) -> None:
    asked = await begun_by_another(world, "save")
    world.runner.finds_anywhere = True
    world.runner.left[asked.key] = ToolOutcome("ok", text="by the job that the other has started")
    members.live = frozenset({HERE})
    await world.relay().take(asked)
    assert (outcomes(world), world.runner.executed, world.ledger.by[asked.key]) == (["ok"], [], HERE)


@pytest.mark.parametrize(("alive", "inherits", "taken_up"), [(True, True, 0), (False, False, 0), (False, True, 1)])
async def test_what_a_gateway_left_is_taken_up_by_its_heir_alone(
    world: World, members: Members, alive: bool, inherits: bool, taken_up: int
) -> None:
    await begun_by_another(world, "handle")
    members.live, members.inherits = frozenset({HERE, OTHER} if alive else {HERE}), inherits
    await world.relay().recover()
    assert len(world.bus.messages) == taken_up


async def test_a_process_that_lost_its_lease_while_it_wrote_its_intent_starts_nothing(world: World) -> None:
    answers = iter([None, TryAgain("the lease has lapsed")])

    async def lapsing() -> None:
        if trouble := next(answers):
            raise trouble

    world.ownership.held = lapsing
    with pytest.raises(TryAgain, match="lapsed"):
        await world.relay().take(asked_for(a_request("save")))
    assert world.runner.executed == []
