"""Coverage of drawn worlds: rare events that should sometimes happen do."""

from collections import Counter
from collections.abc import Callable

from schemas import subjects
from tests.sim.random_world import drawn
from tests.sim.world import World

SOMETIMES: dict[str, Callable[[World], object]] = {
    "an agent dies": lambda world: any(name.startswith("agent") for name in world.record.deaths),
    "a gateway dies": lambda world: any(name.startswith("gateway") for name in world.record.deaths),
    "a service dies twice": lambda world: max(Counter(world.record.deaths).values(), default=0) > 1,
    "several agents share a store": lambda world: world.course.agents > 1,
    "several gateways share a ledger": lambda world: world.course.gateways > 1,
    "a step is tried again": lambda world: any(one.payload.get("attempt", 1) > 1 for one in world.record.requests),
    "a write waits for a person": lambda world: _waits(world, "approval"),
    "a question is asked": lambda world: _waits(world, "question"),
    "a run is handed to a person": lambda world: world.record.of(subjects.ESCALATED),
    "a run is reopened": lambda world: world.record.of(subjects.REOPENED),
    "a model's reply is mended": lambda world: any("could not be used" in one.user for one in world.record.paid),
    "a paid reply is lost": lambda world: world.record.interrupted,
    "a prompt is paid twice": lambda world: len({one.user for one in world.record.paid}) < len(world.record.paid),
    "a message is delivered again": lambda world: world.bus.jetstream.redelivered,
    "a message comes out of order": lambda world: world.bus.jetstream.passed_over,
}
MOST_SEEDS = 200


def _waits(world: World, kind: str) -> bool:
    return any(message.payload.get("kind") == kind for message in world.record.of(subjects.WAITING))


def test_everything_that_should_sometimes_happen_does() -> None:
    left = dict(SOMETIMES)
    for seed in range(1, MOST_SEEDS):
        with drawn(seed) as world:
            world.play_on()
            left = {what: happened for what, happened in left.items() if not happened(world)}
        if not left:
            return
    assert not left, sorted(left)
