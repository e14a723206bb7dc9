"""A gateway that dies at a named point: a port's method, `before` or `after` it has done its work."""

import asyncio
from typing import Any

from ductile_gateway.calls.answers import Answers
from ductile_gateway.calls.lanes import Lanes
from ductile_gateway.calls.relay import Relay
from tests.gateway.parts import CATALOG, World, offering
from tests.kit.crashes import Mortal, Points

POINTS = [
    f"{when} {method}"
    for method in ("intend", "run", "name_artifacts", "put", "answer", "publish", "forget", "published")
    for when in ("before", "after")
]


def dying(point: str) -> Points:
    """Once it has died there, whatever the gateway does is never done. A task that is torn away sees a cancellation."""
    points = Points(final=True, raises=asyncio.CancelledError)
    points.strike_each(point)
    return points


def mortal_relay(world: World, death: Points, *, forgetful: bool) -> Relay:
    """A relay over the world, until its death."""
    ledger: Any = Mortal(world.ledger, death, forgetful=forgetful)
    artifacts: Any = Mortal(world.artifacts, death)
    bus: Any = Mortal(world.bus, death)
    runner: Any = Mortal(world.runner, death)
    return Relay(
        offering(CATALOG),
        ledger=ledger,
        runner=runner,
        artifacts=artifacts,
        answers=Answers(ledger, artifacts, bus, clock=world.clock),
        runs=world.runs,
        lanes=Lanes({"fetch": 4}, room=16),
        clock=world.clock,
    )
