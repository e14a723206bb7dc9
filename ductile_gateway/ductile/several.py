"""Tools in one Ductile or in several. Fills the port ToolRunner, and leaves each call to the Ductile that has its tool.

Each has its own limits, breaker and event stream. Receipts and late jobs of all are kept together.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from ductile_gateway.calls.call import ToolCall, Unknown, Verdict
from ductile_gateway.ductile.answers import Away
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import Going
from ductile_gateway.ductile.late import LateJobs, Tell
from ductile_gateway.ductile.runner import DuctileRunner, open_runner
from ductile_gateway.ductile.settings import DuctileSettings, own_name, owner
from ductile_gateway.ductile.starts import ToldOfSent, untold
from ductile_gateway.ductile.watch import Job, Overdue
from ductile_gateway.ports import Begin, Clock, Receipts, unrecorded
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import Tools, keep_fresh
from schemas.status import Finding
from schemas.values import replace

NOTHING = DuctileTools()


class Ductiles:
    finds_anywhere = True

    def __init__(
        self,
        runners: Mapping[str, DuctileRunner],
        receipts: Receipts,
        overdue: Overdue,
        *,
        every_s: float,
        clock: Clock,
    ) -> None:
        self._runners = runners
        self._receipts = receipts
        self.late = LateJobs(self._look, overdue, every_s=every_s, clock=clock)

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

    def findings(self) -> Sequence[Finding]:
        found = [finding for runner in self._runners.values() for finding in runner.findings()]
        for name, late in self.late.waiting().items():
            text, remedy = f"{late} jobs have outlived their calls", "wait: what comes of them is told on the bus"
            found.append(Finding(name=f"{f'ductile {name}'.rstrip()} calls", mark="warning", text=text, remedy=remedy))
        return found

    async def _look(self, job: Job) -> Going | Away | Verdict:
        if job.ductile not in self._runners:
            return Unknown(f"the settings do not name the Ductile {job.ductile} any more, which has job {job.job_id}")
        return await self._runners[job.ductile].look(job)

    def _of(self, call: ToolCall) -> tuple[str, ToolCall]:
        name = owner(call.plugin, self._runners)
        return name, replace(call, plugin=own_name(call.plugin, of=name))


async def tend(settings: GatewaySettings, tools: Tools, runner: Ductiles, offers: Offers, *, tell_late: Tell) -> None:
    """Discover tools again and follow late jobs, until cancelled. `tools`: found at the start. Raises Broken or
    Misconfigured."""
    every_s = min(ductile.refresh_s for ductile in settings.every_ductile().values())
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.late.follow(tell_late))
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
                    overdue=overdue,
                    clock=clock,
                    told=told,
                )
            )
        every_s = min(settings.poll_most_s for settings in every.values())
        yield Ductiles(runners, receipts, overdue, every_s=every_s, clock=clock)
