"""Gateways that are killed at any point, on a course that a seed draws."""

import random
from collections.abc import Mapping
from typing import Any

from ductile_gateway.calls.admission import QueueLimit
from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.api import DuctileApi
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.events import DuctileEvents
from ductile_gateway.ductile.late import LateJobs
from ductile_gateway.ductile.runner import DuctileRunner
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.starts import ApiStarts, JobSearch, Starts
from ductile_gateway.ductile.watch import JobWatch, Pace
from ductile_gateway.errors import TryAgain
from tests.gateway.parts import World, a_request, asked_for
from tests.gateway.stores import KeptReceipts
from tests.kit.crashes import Crash, Mortal, Points

BRISK = Pace(first_s=0.001, most_s=0.004, patience_s=0.05, settle_s=0.005, in_flight_s=0.01)

WRITES = ("intend", "accepted", "drop", "drop_soon")
"""Of the ledger and its receipts: before or after each the gateway may be killed."""


class Course:
    """What happens, drawn from a seed. Nothing more goes wrong after `troubles` troubles."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a course that can be repeated is what is wanted
        self.troubles = self.dice.randint(1, 4)
        self._end = "none"

    def trouble(self, *kinds: str) -> str:
        """One of the kinds, or "none"."""
        if self.troubles == 0 or self.dice.random() < 0.5:
            return "none"
        self.troubles -= 1
        return self.dice.choice(kinds)

    def ends_here(self, point: str) -> bool:
        """Whether the gateway is killed at this point: before or after a write, drawn once for both."""
        when = point.partition(" ")[0]
        if when == "before":
            self._end = self.trouble("before", "after")
        return self._end == when

    def mortal(self, port: Any) -> Any:
        """The port of a gateway that may be killed at any write."""
        return Mortal(port, Points(drawn=self.ends_here), at=WRITES)


async def live(world: World, runner: DuctileRunner, seed: int, command: str) -> bool:
    """One life of a gateway with the request in hand. False when it has to live again."""
    world.runner = runner
    try:
        await world.relay().take(asked_for(a_request(command, {"url": "x"}, step=seed + 1)))
    except (Crash, TryAgain):
        return False
    return True


def a_runner(
    api: DuctileApi,
    receipts: KeptReceipts,
    course: Course,
    *,
    settings: DuctileSettings,
    relayed: Mapping[str, Starts] | None = None,
) -> DuctileRunner:
    """A runner over these receipts, before or after whose writing it may be killed."""
    clock, tools = SystemClock(), DuctileTools()
    watch = JobWatch(api, DuctileEvents(api), overdue=receipts.overdue, pace=BRISK, clock=clock)
    return DuctileRunner(
        course.mortal(receipts),
        watch,
        starts=ApiStarts(
            api,
            JobSearch(api, watch, pace=BRISK, clock=clock),
            tools=tools,
            send_call_id=settings.send_call_id,
        ),
        relayed=relayed or {},
        pipelines=frozenset(),
        queue=QueueLimit(api.queue_depth, most=settings.queue_most, clock=clock),
        late=LateJobs(watch, receipts.overdue, every_s=BRISK.most_s, clock=clock),
        settings=settings,
        clock=clock,
    )
