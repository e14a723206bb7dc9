"""A gateway that dies at a named point: a port's method, `before` or `after` it has done its work."""

import asyncio

from ductile_gateway.calls.relay import Relay
from tests.gateway.parts import World
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
    mortal = World(
        ledger=Mortal(world.ledger, death, forgetful=forgetful),
        runner=Mortal(world.runner, death),
        artifacts=Mortal(world.artifacts, death),
        bus=Mortal(world.bus, death),
    )
    return mortal.relay()
