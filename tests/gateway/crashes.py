"""A gateway that dies at a named point: a port's method, `before` or `after` it has done its work."""

import asyncio
import inspect
from typing import Any

from ductile_gateway.calls.answers import Answers
from ductile_gateway.calls.lanes import Lanes
from ductile_gateway.calls.relay import Relay
from tests.gateway.parts import CATALOG, World, offering

POINTS = [
    f"{when} {method}"
    for method in ("intend", "run", "name_artifacts", "put", "answer", "publish", "forget", "published")
    for when in ("before", "after")
]


class Death:
    """Once it has come, whatever the gateway does is never done."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.came = asyncio.Event()

    def pass_by(self, when: str, method: str) -> None:
        if self.came.is_set() or f"{when} {method}" == self.point:
            self.came.set()
            # What a task that is torn away sees; like a kill it is no error that anybody handles.
            raise asyncio.CancelledError(self.point)


class Mortal:
    """A port of a gateway that can die. Of a `forgetful` one nothing is left that nobody waited for."""

    def __init__(self, port: Any, death: Death, *, forgetful: bool = False) -> None:
        self._port = port
        self._death = death
        self._forgetful = forgetful

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._port, method)
        if inspect.iscoroutinefunction(work):
            return self._awaited(method, work)
        return self._at_once(method, work)

    def _awaited(self, method: str, work: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._death.pass_by("before", method)
            value = await work(*args, **kwargs)
            self._death.pass_by("after", method)
            return value

        return call

    def _at_once(self, method: str, work: Any) -> Any:
        def call(*args: Any) -> None:
            self._death.pass_by("before", method.removesuffix("_soon"))
            if not self._forgetful:
                work(*args)
            self._death.pass_by("after", method.removesuffix("_soon"))

        return call


def mortal_relay(world: World, death: Death, *, forgetful: bool) -> Relay:
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
