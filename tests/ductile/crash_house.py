"""Gateways that are killed at any point, on a course that a seed draws."""

import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.api import DuctileApi
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.events import DuctileEvents
from ductile_gateway.ductile.late import LateJobs
from ductile_gateway.ductile.queue import DuctileQueue
from ductile_gateway.ductile.runner import DuctileRunner
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.starts import ApiStarts, JobSearch, Starts
from ductile_gateway.ductile.watch import JobWatch, Pace
from ductile_gateway.errors import TryAgain
from ductile_gateway.store.receipts import Receipt, SqliteReceipts, Way
from tests.gateway.parts import World, a_request, asked_for

BRISK = Pace(first_s=0.001, most_s=0.004, patience_s=0.05, settle_s=0.005, in_flight_s=0.01)


class Killed(BaseException):
    """The gateway has ended here."""


class Course:
    """What happens, drawn from a seed. Nothing more goes wrong after `troubles` troubles."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a course that can be repeated is what is wanted
        self.troubles = self.dice.randint(1, 4)

    def trouble(self, *kinds: str) -> str:
        """One of the kinds, or "none"."""
        if self.troubles == 0 or self.dice.random() < 0.5:
            return "none"
        self.troubles -= 1
        return self.dice.choice(kinds)


class MortalReceipts:
    """Receipts before or after whose writing the gateway may end."""

    def __init__(self, receipts: SqliteReceipts, course: Course) -> None:
        self._receipts = receipts
        self._course = course

    async def begin(self, key: str, at: datetime, way: Way, newest: str | None) -> bool:
        return bool(await self._around(lambda: self._receipts.begin(key, at, way, newest)))

    async def accepted(self, key: str, job_id: str) -> None:
        await self._around(lambda: self._receipts.accepted(key, job_id))

    async def find(self, key: str) -> Receipt | None:
        return await self._receipts.find(key)

    async def drop(self, key: str) -> None:
        await self._around(lambda: self._receipts.drop(key))

    def drop_soon(self, key: str) -> None:
        if self._course.trouble("killed") == "killed":
            raise Killed
        self._receipts.drop_soon(key)

    async def _around(self, write: Callable[[], Awaitable[object]]) -> object:
        trouble = self._course.trouble("killed before", "killed after")
        if trouble == "killed before":
            raise Killed
        written = await write()
        if trouble == "killed after":
            raise Killed
        return written


async def live(world: World, runner: DuctileRunner, seed: int, command: str) -> bool:
    """One life of a gateway with the request in hand. False when it has to live again."""
    world.runner = runner
    try:
        await world.relay().take(asked_for(a_request(command, {"url": "x"}, step=seed + 1)))
    except (Killed, TryAgain):
        return False
    return True


def a_runner(
    api: DuctileApi,
    receipts: SqliteReceipts,
    course: Course,
    *,
    settings: DuctileSettings,
    relayed: Mapping[str, Starts] | None = None,
) -> DuctileRunner:
    """A runner over these receipts, before or after whose writing it may be killed."""
    clock, tools = SystemClock(), DuctileTools()
    watch = JobWatch(api, DuctileEvents(api), overdue=receipts.overdue, pace=BRISK, clock=clock)
    return DuctileRunner(
        MortalReceipts(receipts, course),
        watch,
        starts=ApiStarts(
            api,
            JobSearch(api, watch, pace=BRISK, clock=clock),
            tools=tools,
            send_call_id=settings.send_call_id,
        ),
        relayed=relayed or {},
        pipelines=frozenset(),
        queue=DuctileQueue(api, most=settings.queue_most, clock=clock),
        late=LateJobs(watch, receipts.overdue, every_s=BRISK.most_s, clock=clock),
        settings=settings,
        clock=clock,
    )
