"""The port ToolRunner over one or several Ductiles. Jobs that outlive their calls are followed, past restarts too."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import NoReturn

import httpx2

from ductile_gateway.calls.call import EPOCH, Job, ToolCall, Unknown, Verdict
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ductile.api import Unavailable, open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import DuctileHealth, OnStart, Unfinished
from ductile_gateway.ductile.relay import open_relay_ingress
from ductile_gateway.ductile.runner import DuctileRunner
from ductile_gateway.ductile.settings import DuctileSettings, owner
from ductile_gateway.ductile.watch import Timing
from ductile_gateway.ports import Begin, unrecorded
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from groundwork.service.machine import utc_now
from schemas.status import Finding
from schemas.values import dataclass

FOLLOWED_FOR = timedelta(hours=24)
"""As long as Ductile keeps its jobs."""

ReportLate = Callable[[str, Verdict], Awaitable[bool]]
"""Takes the key of a call and its late verdict; returns False while the call has no answer yet."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Ductiles:
    """`runners` by the name of their Ductile. `every_s`: between polls of jobs that outlived their calls."""

    runners: Mapping[str, DuctileRunner]
    ledger: Ledger
    every_s: float
    finds_anywhere = True

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        return await self.runners[owner(call.plugin, self.runners)].run(call, begin)

    async def resume(self, call: ToolCall) -> Verdict:
        if its := self.runners.get(owner(call.plugin, self.runners)):
            return await its.resume(call)
        return Unknown(f"it was made in a Ductile that the settings do not name any more ({call.plugin})")

    async def forget(self, key: str) -> None:
        await self.ledger.never_sent(key)

    def replace_tools(self, tools: Mapping[str, DuctileTools]) -> None:
        for name, found in tools.items():
            self.runners[name].tools = found

    def findings(self) -> Sequence[Finding]:
        text, remedy = "{} jobs have outlived their calls", "wait: what comes of them is told on the bus"
        late = Counter(f"ductile {job.ductile}".rstrip() for _, job in self.ledger.late())
        return [
            Finding(name=f"{name} calls", mark="warning", text=text.format(number), remedy=remedy)
            for name, number in late.items()
        ]

    async def follow_late(self, report: ReportLate) -> NoReturn:
        while True:
            try:
                for key, job in self.ledger.late():
                    await self._follow(key, job, report)
            except TryAgain as error:
                log.warning("late results are looked for again later", extra={"why": str(error)})
            await asyncio.sleep(self.every_s)

    async def _follow(self, key: str, job: Job, report: ReportLate) -> None:
        over, its = utc_now() >= (job.late_since or EPOCH) + FOLLOWED_FOR, self.runners.get(job.ductile)
        unknown = Unknown(f"the settings do not name the Ductile {job.ductile} any more, which has job {job.job_id}")
        try:
            reading = await its.watch.poll(job) if its else unknown
            if isinstance(reading, Unfinished | Unavailable):
                if not over:
                    return
                reading = Unknown(f"job {job.job_id} of Ductile had not ended {FOLLOWED_FOR} after the deadline")
            is_reported = await report(key, reading)
        except (TryAgain, Broken, Misconfigured):
            raise
        except Exception:  # a retry would fail as well
            log.exception("what came of a late job cannot be told", extra={"call": key, "job": job.job_id})
            is_reported = True
        if is_reported or over:
            await self.ledger.late_reported(key)


@contextlib.asynccontextmanager
async def open_ductiles(
    every: Mapping[str, DuctileSettings],
    tools: Mapping[str, DuctileTools],
    ledger: Ledger,
    *,
    healths: Mapping[str, DuctileHealth],
    on_start: OnStart,
    timing: Timing | None = None,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[Ductiles]:
    runners = dict[str, DuctileRunner]()
    async with contextlib.AsyncExitStack() as opened:
        for name, its in every.items():
            ingress = None
            if us := its.relay:
                opening = open_relay_ingress(its.url, us, timeout_s=its.request_timeout_s, transport=transport)
                ingress = await opened.enter_async_context(opening)
            runner = runners[name] = DuctileRunner(
                settings=its,
                api=await opened.enter_async_context(open_api(its, transport)),
                ingress=ingress,
                tools=tools.get(name, DuctileTools()),
                ledger=ledger,
                timing=timing or Timing(most_s=its.poll_most_s),
                health=healths[name],
                on_start=on_start,
            )
            if its.events:
                opened.push_async_callback(_ended, asyncio.create_task(runner.watch.follow_events()))
        yield Ductiles(runners, ledger, min(its.poll_most_s for its in every.values()))


async def _ended(following: asyncio.Task[None]) -> None:
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
