"""Tools in one Ductile or in several. Fills the port ToolRunner, and leaves each call to the Ductile that has its tool.

Each has its own limits, breaker and event stream. Receipts and overdue jobs of all are kept together.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ductile_gateway.calls.call import ToolCall, Unknown, Verdict
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.late import Tell
from ductile_gateway.ductile.runner import DuctileRunner, open_runner
from ductile_gateway.ductile.settings import DuctileSettings, own_name, owner
from ductile_gateway.ductile.starts import ToldOfSent, untold
from ductile_gateway.ductile.watch import Job, Overdue, OverdueJob
from ductile_gateway.ports import Begin, Clock, Receipts, unrecorded
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import Tools, keep_fresh
from schemas.status import Finding

AsOne = Callable[[str, Callable[[], Awaitable[object]]], Coroutine[None, None, None]]
"""Takes the name of what only one of several gateways does, and does it while that is this one."""
NOTHING = DuctileTools()


class Ductiles:
    finds_anywhere = True

    def __init__(self, runners: Mapping[str, DuctileRunner], receipts: Receipts) -> None:
        self._runners = runners
        self._receipts = receipts

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        name, its = self._of(call)
        return await self._runners[name].run(its, begin)

    async def resume(self, call: ToolCall) -> Verdict:
        name, its = self._of(call)
        if name not in self._runners:
            return Unknown(f"it was made in a Ductile that the settings do not name any more ({call.plugin})")
        return await self._runners[name].resume(its)

    async def forget(self, key: str) -> None:
        self._receipts.drop_soon(key)

    def now_has(self, tools: Mapping[str, DuctileTools]) -> None:
        for name, found in tools.items():
            self._runners[name].now_has(found)

    async def findings(self) -> Sequence[Finding]:
        parts = [await runner.findings() for runner in self._runners.values()]
        return [finding for part in parts for finding in part]

    async def follow_late(self, tell: Tell) -> None:
        async with asyncio.TaskGroup() as group:
            for runner in self._runners.values():
                group.create_task(runner.late.follow(tell))

    def _of(self, call: ToolCall) -> tuple[str, ToolCall]:
        name = owner(call.plugin, self._runners)
        return name, replace(call, plugin=own_name(call.plugin, of=name))


class OverdueIn:
    def __init__(self, overdue: Overdue, ductile: str) -> None:
        self._overdue = overdue
        self._ductile = ductile

    async def add(self, key: str, job: Job, at: datetime) -> None:
        job_id = f"{self._ductile}/{job.job_id}" if self._ductile else job.job_id
        await self._overdue.add(key, replace(job, job_id=job_id), at)

    def all(self) -> list[OverdueJob]:
        noted = [(late.job.job_id.rpartition("/"), late) for late in self._overdue.all()]
        return [
            replace(late, job=replace(late.job, job_id=job_id))
            for (ductile, _, job_id), late in noted
            if ductile == self._ductile
        ]

    async def drop(self, key: str) -> None:
        await self._overdue.drop(key)


async def tend(
    settings: GatewaySettings, tools: Tools, runner: Ductiles, offers: Offers, *, tell_late: Tell, as_one: AsOne
) -> None:
    """Discover tools again and follow late jobs, until cancelled. `tools`: found at the start. Raises Broken or
    Misconfigured."""
    every_s = min(ductile.refresh_s for ductile in settings.every_ductile().values())
    async with asyncio.TaskGroup() as group:
        group.create_task(as_one("late jobs", partial(runner.follow_late, tell_late)))
        group.create_task(keep_fresh(settings, offers, runner.now_has, every_s=every_s, known=tools.ductiles))


@contextlib.asynccontextmanager
async def open_ductiles(
    every: Mapping[str, DuctileSettings],
    tools: Mapping[str, DuctileTools],
    *,
    receipts: Receipts,
    overdue: Overdue,
    clock: Clock,
    told: ToldOfSent = untold,
) -> AsyncIterator[Ductiles]:
    async with contextlib.AsyncExitStack() as stack:
        runners = dict[str, DuctileRunner]()
        for name, settings in every.items():
            api = await stack.enter_async_context(open_api(settings))
            runners[name] = await stack.enter_async_context(
                open_runner(
                    api,
                    tools.get(name, NOTHING),
                    settings,
                    receipts=receipts,
                    overdue=OverdueIn(overdue, name),
                    clock=clock,
                    told=told,
                )
            )
        yield Ductiles(runners, receipts)
