"""Runs calls in one or several Ductiles: the port ToolRunner.

    intent and receipt durable ─▶ start ─▶ job id durable ─▶ wait for the job ─▶ verdict

Ductile's health is checked before each write: if a proxy answered in its place, the outcome would be unknown. A job
that outlives its call is followed on, also across restarts.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import NoReturn

import httpx2

from ductile_gateway.calls.call import EPOCH, Job, NeverStarted, Receipt, ToolCall, Unknown, Verdict, failed
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ductile.api import AnswerLost, Unavailable, open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import DuctileHealth, OnStart, Unfinished
from ductile_gateway.ductile.relay import open_relay_ingress
from ductile_gateway.ductile.settings import DuctileSettings, full_name, own_name, owner
from ductile_gateway.ductile.starts import COME_BACK_S, Starts
from ductile_gateway.ductile.watch import DuctileEvents, JobWatch, Timing
from ductile_gateway.ports import Begin, unrecorded
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from groundwork.service.machine import utc_now
from schemas.status import Finding
from schemas.values import dataclass, replace

QUEUE_COME_BACK_S = 5.0
FOLLOWED_FOR = timedelta(hours=24)
"""As long as Ductile keeps its jobs."""

ReportLate = Callable[[str, Verdict], Awaitable[bool]]
"""Takes the key of a call and its late verdict; returns False while the call has no answer yet."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class DuctileRunner:
    settings: DuctileSettings
    ledger: Ledger
    watch: JobWatch
    starts: Starts
    health: DuctileHealth
    on_start: OnStart

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        """Raises TryAgain if nothing was sent, and what `begin` raises."""
        depth, most = self.health.queue, self.settings.queue_most
        if depth is not None and most is not None and depth > most:
            raise TryAgain(f"Ductile has {depth} jobs waiting or running, more than {most}", QUEUE_COME_BACK_S)
        await begin(receipt := await self.starts.receipt(call))
        start = await self.starts.attempt(call)
        self.on_start(call, start)
        if start.job_id:
            return await self._accepted(call, start.job_id, receipt)
        if start.outcome == "lost":
            found = await self._lost(call, receipt, start.why)
            if isinstance(found, NeverStarted):
                raise TryAgain(f"{start.why}; Ductile has no job of the call, so it is made again", COME_BACK_S)
            return found
        await self.ledger.never_sent(call.key)
        if start.outcome == "not_sent":
            raise TryAgain(start.why, COME_BACK_S)
        is_missing = any(words in start.why for words in ("not found", "not supported", "not allowed"))
        if start.status in (400, 413, 422) and not is_missing:
            return failed("invalid_arguments", start.why, retryable=False)
        is_of_token = start.status in (401, 403) and receipt.way != "event"
        remedy = f". `agentic doctor` says what {self.settings.place}.token lacks" if is_of_token else ""
        return failed("configuration", f"{start.why}{remedy}", retryable=False)

    async def resume(self, call: ToolCall) -> Verdict:
        receipt = await self.ledger.receipt(call.key)
        if receipt is None:
            return NeverStarted()
        if receipt.job_id is None:
            return await self._found(call, receipt)
        return await self._watched(call, receipt.job_id, receipt)

    async def _found(self, call: ToolCall, receipt: Receipt) -> Verdict:
        found = await self.starts.find(call, receipt)
        if isinstance(found, NeverStarted):
            await self.ledger.never_sent(call.key)
        return await self._accepted(call, found, receipt) if isinstance(found, str) else found

    async def _lost(self, call: ToolCall, receipt: Receipt, why: str) -> Verdict:
        log.warning("an answer was lost", extra=call.facts() | {"why": why})
        found = await self._found(call, receipt)
        return replace(found, reason=f"{found.reason} ({why})") if isinstance(found, Unknown) else found

    async def _accepted(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        self.starts.known_jobs.append(job_id)
        try:
            await self.ledger.accepted(call.key, job_id)
        except TryAgain as error:  # this process knows the job: only a crash would leave it in doubt
            log.warning("a job id is not stored", extra=call.facts() | {"job_id": job_id, "why": str(error)})
        return await self._watched(call, job_id, receipt)

    async def _watched(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        of = (own_name(call.plugin, of=self.settings.name), call.command) if receipt.way == "plugin" else None
        job = Job(job_id, pipeline=receipt.way != "plugin", of=of, ductile=self.settings.name)
        try:
            return await self.watch.verdict(job, call)
        except AnswerLost as error:
            return await self._lost(call, receipt, str(error))


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
            self.runners[name].starts.tools = found

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
            api = await opened.enter_async_context(open_api(its, transport))
            kept, events = timing or Timing(most_s=its.poll_most_s), DuctileEvents(api)
            ingress, kinds = None, dict[str, str]()
            if us := its.relay:
                opening = open_relay_ingress(its.url, us, timeout_s=its.request_timeout_s, transport=transport)
                ingress = await opened.enter_async_context(opening)
                kinds = {full_name(route, of=name): kind for route, kind in us.event_types().items()}
            if its.events:
                opened.push_async_callback(_ended, asyncio.create_task(events.follow()))
            runners[name] = DuctileRunner(
                settings=its,
                ledger=ledger,
                watch=JobWatch(api, events, ledger, kept, its.secrets()),
                starts=Starts(api, ingress, kinds, tools.get(name, DuctileTools()), its, kept),
                health=healths[name],
                on_start=on_start,
            )
        yield Ductiles(runners, ledger, min(its.poll_most_s for its in every.values()))


async def _ended(following: asyncio.Task[None]) -> None:
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
