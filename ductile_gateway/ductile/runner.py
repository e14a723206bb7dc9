"""Tools in one Ductile. Fills the port ToolRunner.

    intent and receipt durable ─▶ start ─▶ job id durable ─▶ wait for the job ─▶ verdict

Before a write Ductile is asked whether it is there: a write that something on the way answers in its place would have
to be looked for, or by a person.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta

import httpx2

from ductile_gateway.calls.admission import Breaker, InFlight, QueueLimit
from ductile_gateway.calls.call import NeverStarted, Receipt, ToolCall, ToolOutcome, Unknown, Verdict, Way, failed
from ductile_gateway.ductile.answers import Away, DuctileRefused, Lost, NotSent
from ductile_gateway.ductile.api import DuctileApi
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.events import DuctileEvents
from ductile_gateway.ductile.jobs import Going
from ductile_gateway.ductile.relay_client import open_relay_starts
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.starts import ApiStarts, Starts, ToldOfSent, start_told, untold
from ductile_gateway.ductile.watch import Job, JobWatch, Overdue, Pace
from ductile_gateway.ports import Begin, Clock, Receipts, unrecorded
from groundwork.service.errors import TryAgain
from schemas.status import Finding
from schemas.values import dataclass, replace

COME_BACK_S = 1.0
HEALTHY_WITHIN_S = 5.0
PLACE_WITHIN_S = 5.0
"""How long a call waits here for a place before it is given back to the bus: the wait is not the tool's time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """How calls are started: as `relayed` says for its routes, else by `api`. `told` of each request to start one."""

    api: ApiStarts
    relayed: Mapping[str, Starts]
    told: ToldOfSent


class DuctileRunner:
    """Runs calls in one Ductile, from `open_runner`. One gateway per ledger."""

    finds_anywhere = True

    def __init__(
        self,
        receipts: Receipts,
        watch: JobWatch,
        routes: Routes,
        *,
        queue: QueueLimit,
        settings: DuctileSettings,
        clock: Clock,
    ) -> None:
        self._receipts = receipts
        self._watch = watch
        self._told = routes.told
        self._starts = routes.api
        self._relayed = routes.relayed
        self._queue = queue
        self._in_flight = InFlight(settings.in_flight)
        self._breaker = Breaker(settings.breaker_failures, timedelta(seconds=settings.breaker_open_s))
        self._name, self._label = settings.name, settings.label.capitalize()
        self._clock = clock

    def now_has(self, tools: DuctileTools) -> None:
        self._starts.now_has(tools)

    async def look(self, job: Job) -> Going | Away | Verdict:
        return await self._watch.look(job)

    def findings(self) -> Sequence[Finding]:
        return [
            Finding(
                name=f"{self._label.lower()} calls",
                mark="warning",
                text=f"{plugin} could not be reached several times and is left alone for {wait_s:.0f} s more",
                remedy="see whether Ductile answers; its calls wait on the bus",
            )
            for plugin, wait_s in sorted(self._breaker.left_alone(self._clock.now()).items())
        ]

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        """Raises AlreadyStarted for a key that was begun and not forgotten, TryAgain when nothing was sent, and what
        `begin` raises."""
        left_s = (call.deadline_at - self._clock.now()).total_seconds()
        if left_s <= 0:
            return failed("expired", "the deadline had passed before the call was sent to Ductile", retryable=True)
        async with self._in_flight.new(call.asked.request.run_id, within_s=min(left_s, PLACE_WITHIN_S)) as there_is_one:
            if not there_is_one:
                raise TryAgain("as many calls are in Ductile as may be", COME_BACK_S)
            await self._queue.check()
            return await self._run(self._from_now(call, left_s), begin)

    def _from_now(self, call: ToolCall, left_s: float) -> ToolCall:
        deadline_at = self._clock.now() + timedelta(seconds=left_s)
        return replace(call, deadline_at=min(deadline_at, call.wanted_until or deadline_at))

    async def resume(self, call: ToolCall) -> Verdict:
        """The verdict on a call that may have been sent before: of the same job, if it is known or can be found."""
        receipt = await self._receipts.find(call.key)
        if receipt is None:
            return NeverStarted()
        async with self._in_flight.begun_before(call.asked.request.run_id):
            if receipt.job_id is None:
                return await self._found(call, receipt)
            return await self._watched(call, receipt.job_id, receipt)

    async def forget(self, key: str) -> None:
        self._receipts.drop_soon(key)

    async def _run(self, call: ToolCall, begin: Begin) -> Verdict:
        if wait_s := self._breaker.wait_s(call.plugin, self._clock.now()):
            raise TryAgain(f"{call.plugin} in {self._label} is left alone after several failures", wait_s)
        receipt = await self._before(call)
        await begin(receipt)
        try:
            starts = self._relayed.get(call.plugin, self._starts)
            job_id = await start_told(starts, call, told=self._told, clock=self._clock)
        except NotSent as error:
            await self._receipts.drop(call.key)
            raise TryAgain(str(error), self._failed(call.plugin)) from error
        except DuctileRefused as refusal:
            await self._receipts.drop(call.key)
            return self._refused(call, refusal)
        except Lost as error:
            log.warning("an answer was lost", extra=call.facts() | {"why": str(error)})
            wait_s = self._failed(call.plugin)
            found = await self._found(call, receipt)
            if isinstance(found, NeverStarted):
                raise TryAgain(f"{error}; Ductile has no job of the call, so it is made again", wait_s) from error
            return replace(found, reason=f"{found.reason} ({error})") if isinstance(found, Unknown) else found
        self._breaker.succeeded(call.plugin)
        return await self._accepted(call, job_id, receipt)

    async def _before(self, call: ToolCall) -> Receipt:
        """The receipt of a call that is to be sent now. Raises TryAgain where a stranger would answer a write."""
        way = self._way(call.plugin)
        if call.may_repeat or way == "event":  # repeated, both do no harm
            return Receipt(self._clock.now(), way=way)
        try:
            async with asyncio.timeout(HEALTHY_WITHIN_S):
                newest = await self._starts.before(call)
        except (Away, TimeoutError) as error:
            raise TryAgain(
                f"not sent: {error or 'Ductile does not say how it is'}", self._failed(call.plugin)
            ) from error
        return Receipt(self._clock.now(), way=way, newest=newest)

    def _way(self, route: str) -> Way:
        if route in self._relayed:
            return "event"
        return "pipeline" if self._starts.is_pipeline(route) else "plugin"

    async def _found(self, call: ToolCall, receipt: Receipt) -> Verdict:
        starts = self._relayed.get(call.plugin) if receipt.way == "event" else self._starts
        if starts is None:
            return Unknown("its event in Ductile was not answered, and its route is not called by events any more")
        found = await starts.find(call, receipt)
        if isinstance(found, NeverStarted):
            await self._receipts.drop(call.key)
        return await self._accepted(call, found, receipt) if isinstance(found, str) else found

    async def _accepted(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        self._starts.know(job_id)
        try:
            await self._receipts.accepted(call.key, job_id)
        except TryAgain as error:  # the job runs, and this process knows it: only a crash would make it doubtful
            log.warning("a job id is not stored", extra=call.facts() | {"job_id": job_id, "why": str(error)})
        return await self._watched(call, job_id, receipt)

    async def _watched(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        of = (call.plugin, call.command) if receipt.way == "plugin" else None
        try:
            return await self._watch.verdict(
                Job(job_id, pipeline=receipt.way != "plugin", of=of, ductile=self._name), call
            )
        except Lost as error:
            log.warning("an answer was lost", extra=call.facts() | {"why": str(error)})
            found = await self._found(call, receipt)
            return replace(found, reason=f"{found.reason} ({error})") if isinstance(found, Unknown) else found

    def _failed(self, plugin: str) -> float:
        now = self._clock.now()
        if self._breaker.failed(plugin, now):
            log.warning("left alone after several failures", extra={"plugin": plugin})
        return self._breaker.wait_s(plugin, now) or COME_BACK_S

    def _refused(self, call: ToolCall, refusal: DuctileRefused) -> ToolOutcome:
        self._breaker.succeeded(call.plugin)
        is_missing = any(words in str(refusal) for words in ("not found", "not supported", "not allowed"))
        is_of_arguments = refusal.status in (400, 413, 422) and not is_missing
        error_class = "invalid_arguments" if is_of_arguments else "configuration"
        return failed(error_class, str(refusal), retryable=False)


@contextlib.asynccontextmanager
async def open_runner(
    api: DuctileApi,
    tools: DuctileTools,
    settings: DuctileSettings,
    *,
    receipts: Receipts,
    overdue: Overdue,
    clock: Clock,
    told: ToldOfSent = untold,
    pace: Pace | None = None,
    relay_transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[DuctileRunner]:
    """`relay_transport`: in place of the network, for Ductile's relay ingress."""
    pace = pace or Pace(first_s=settings.poll_first_s, most_s=settings.poll_most_s)
    async with (
        open_relay_starts(settings, clock=clock, transport=relay_transport) as relayed,
        _followed(DuctileEvents(api), wanted=settings.events) as events,
    ):
        watch = JobWatch(api, events, overdue=overdue, pace=pace, clock=clock, secrets=settings.secrets())
        starts = ApiStarts(api, watch, tools=tools, send_call_id=settings.send_call_id, pace=pace, clock=clock)
        yield DuctileRunner(
            receipts,
            watch,
            Routes(api=starts, relayed=relayed, told=told),
            queue=QueueLimit(api.queue_depth, most=settings.queue_most, clock=clock),
            settings=settings,
            clock=clock,
        )


@contextlib.asynccontextmanager
async def _followed(events: DuctileEvents, *, wanted: bool) -> AsyncIterator[DuctileEvents]:
    following = asyncio.create_task(events.follow()) if wanted else None
    try:
        yield events
    finally:
        if following:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
