"""Tools in one Ductile or in several. Fills the port ToolRunner, and leaves each call to the Ductile that has its tool.

    intent and receipt durable ─▶ start ─▶ job id durable ─▶ wait for the job ─▶ verdict

Before a write Ductile is asked whether it is there: a write that something on the way answers in its place would have
to be looked for, or by a person. Each Ductile has its own event stream; receipts and late jobs of all are kept
together.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial

import httpx2

from ductile_gateway.calls.call import NeverStarted, Receipt, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.ductile.answers import Away, DuctileRefused, Lost, NotSent
from ductile_gateway.ductile.api import DuctileApi, open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.events import DuctileEvents
from ductile_gateway.ductile.jobs import Going
from ductile_gateway.ductile.relay import RelayStarts, open_relay_starts
from ductile_gateway.ductile.settings import DuctileSettings, own_name, owner
from ductile_gateway.ductile.starts import ApiStarts, Sent, ToldOfSent, untold
from ductile_gateway.ductile.watch import Job, JobWatch, LateJobs, Overdue, Pace, Tell
from ductile_gateway.ports import Begin, Clock, Receipts, unrecorded
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import Tools, keep_fresh
from groundwork.service.errors import TryAgain
from schemas.status import Finding
from schemas.values import replace

COME_BACK_S = 1.0
HEALTHY_WITHIN_S = 5.0
QUEUE_COME_BACK_S = 5.0

Queue = Callable[[], int | None]
"""The number of jobs waiting or running in a Ductile; None where that is not known."""

log = logging.getLogger(__name__)


class DuctileRunner:
    """Runs calls in one Ductile. `relayed`: how calls of these routes are started."""

    def __init__(
        self,
        receipts: Receipts,
        watch: JobWatch,
        api: ApiStarts,
        relayed: Mapping[str, RelayStarts],
        *,
        settings: DuctileSettings,
        queue: Queue,
        clock: Clock,
        told: ToldOfSent,
    ) -> None:
        self._receipts = receipts
        self._told = told
        self._api = api
        self._relayed = relayed
        self._queue = queue
        self._name, self._queue_most = settings.name, settings.queue_most
        self._clock = clock
        self.watch = watch

    def now_has(self, tools: DuctileTools) -> None:
        self._api.tools = tools

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        """Raises AlreadyStarted for a key that was begun and not forgotten, TryAgain when nothing was sent, and what
        `begin` raises."""
        left_s = (call.deadline_at - self._clock.now()).total_seconds()
        if left_s <= 0:
            return failed("expired", "the deadline had passed before the call was sent to Ductile", retryable=True)
        depth = self._queue()
        if depth is not None and self._queue_most is not None and depth > self._queue_most:
            why = f"Ductile has {depth} jobs waiting or running, more than {self._queue_most}"
            raise TryAgain(why, QUEUE_COME_BACK_S)
        return await self._run(call, begin)

    async def resume(self, call: ToolCall) -> Verdict:
        """The verdict on a call that may have been sent before: of the same job, if it is known or can be found."""
        receipt = await self._receipts.find(call.key)
        if receipt is None:
            return NeverStarted()
        if receipt.job_id is None:
            return await self._found(call, receipt)
        return await self._watched(call, receipt.job_id, receipt)

    async def _run(self, call: ToolCall, begin: Begin) -> Verdict:
        starts = self._relayed.get(call.plugin, self._api)
        receipt = await self._before(call, starts)
        await begin(receipt)
        try:
            job_id = await self._start(call, starts)
        except NotSent as error:
            await self._receipts.drop(call.key)
            raise TryAgain(str(error), COME_BACK_S) from error
        except DuctileRefused as refusal:
            await self._receipts.drop(call.key)
            return _refused(refusal)
        except Lost as error:
            found = await self._lost(call, receipt, error)
            if isinstance(found, NeverStarted):
                raise TryAgain(f"{error}; Ductile has no job of the call, so it is made again", COME_BACK_S) from error
            return found
        return await self._accepted(call, job_id, receipt)

    async def _before(self, call: ToolCall, starts: ApiStarts | RelayStarts) -> Receipt:
        """The receipt of a call that is to be sent now. Raises TryAgain where a stranger would answer a write."""
        way = starts.way(call)
        if call.may_repeat or way == "event":  # repeated, both do no harm
            return Receipt(self._clock.now(), way=way)
        try:
            async with asyncio.timeout(HEALTHY_WITHIN_S):
                newest = await self._api.before(call)
        except (Away, TimeoutError) as error:
            why = error or "Ductile does not say how it is"
            raise TryAgain(f"not sent: {why}", COME_BACK_S) from error
        return Receipt(self._clock.now(), way=way, newest=newest)

    async def _start(self, call: ToolCall, starts: ApiStarts | RelayStarts) -> str:
        began_at, sent = self._clock.now(), partial(Sent, fate="lost")
        try:
            job_id = await starts.start(call)
            sent = partial(Sent, fate="accepted", status=httpx2.codes.ACCEPTED, job_id=job_id)
        except NotSent:
            sent = partial(Sent, fate="not_sent")
            raise
        except DuctileRefused as refusal:
            sent = partial(Sent, fate="refused", status=refusal.status or None)
            raise
        finally:
            self._told(call, sent(path=starts.path(call), began_at=began_at, ended_at=self._clock.now()))
        return job_id

    async def _found(self, call: ToolCall, receipt: Receipt) -> Verdict:
        starts = self._relayed.get(call.plugin) if receipt.way == "event" else self._api
        if starts is None:
            return Unknown("its event in Ductile was not answered, and its route is not called by events any more")
        found = await starts.find(call, receipt)
        if isinstance(found, NeverStarted):
            await self._receipts.drop(call.key)
        return await self._accepted(call, found, receipt) if isinstance(found, str) else found

    async def _lost(self, call: ToolCall, receipt: Receipt, error: Lost) -> Verdict:
        log.warning("an answer was lost", extra=call.facts() | {"why": str(error)})
        found = await self._found(call, receipt)
        return replace(found, reason=f"{found.reason} ({error})") if isinstance(found, Unknown) else found

    async def _accepted(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        self._api.know(job_id)
        try:
            await self._receipts.accepted(call.key, job_id)
        except TryAgain as error:  # the job runs, and this process knows it: only a crash would make it doubtful
            log.warning("a job id is not stored", extra=call.facts() | {"job_id": job_id, "why": str(error)})
        return await self._watched(call, job_id, receipt)

    async def _watched(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        of = (call.plugin, call.command) if receipt.way == "plugin" else None
        job = Job(job_id, pipeline=receipt.way != "plugin", of=of, ductile=self._name)
        try:
            return await self.watch.verdict(job, call)
        except Lost as error:
            return await self._lost(call, receipt, error)


def _refused(refusal: DuctileRefused) -> ToolOutcome:
    is_missing = any(words in str(refusal) for words in ("not found", "not supported", "not allowed"))
    is_of_arguments = refusal.status in (400, 413, 422) and not is_missing
    return failed("invalid_arguments" if is_of_arguments else "configuration", str(refusal), retryable=False)


@contextlib.asynccontextmanager
async def open_runner(
    api: DuctileApi,
    tools: DuctileTools,
    settings: DuctileSettings,
    *,
    receipts: Receipts,
    overdue: Overdue,
    clock: Clock,
    queue: Queue = lambda: None,
    told: ToldOfSent = untold,
    pace: Pace | None = None,
    relay_transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[DuctileRunner]:
    """`relay_transport`: in place of the network, for Ductile's relay ingress."""
    pace = pace or Pace(most_s=settings.poll_most_s)
    events = DuctileEvents(api)
    following = asyncio.create_task(events.follow()) if settings.events else None
    watch = JobWatch(api, events, overdue=overdue, pace=pace, clock=clock, secrets=settings.secrets())
    starts = ApiStarts(api, watch, tools=tools, send_call_id=settings.send_call_id, pace=pace, clock=clock)
    try:
        async with open_relay_starts(settings, pace=pace, clock=clock, transport=relay_transport) as relayed:
            yield DuctileRunner(
                receipts, watch, starts, relayed, settings=settings, queue=queue, clock=clock, told=told
            )
    finally:
        if following:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


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
        await self._receipts.drop(key)

    def now_has(self, tools: Mapping[str, DuctileTools]) -> None:
        for name, found in tools.items():
            self._runners[name].now_has(found)

    def findings(self) -> Sequence[Finding]:
        text, remedy = "{} jobs have outlived their calls", "wait: what comes of them is told on the bus"
        names = {f"ductile {name}".rstrip(): late for name, late in self.late.waiting().items()}
        return [
            Finding(name=f"{name} calls", mark="warning", text=text.format(late), remedy=remedy)
            for name, late in names.items()
        ]

    async def _look(self, job: Job) -> Going | Away | Verdict:
        if job.ductile not in self._runners:
            return Unknown(f"the settings do not name the Ductile {job.ductile} any more, which has job {job.job_id}")
        return await self._runners[job.ductile].watch.look(job)

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
    queues: Mapping[str, Queue],
    told: ToldOfSent,
) -> AsyncIterator[Ductiles]:
    """`queues`: by the name of the Ductile, how many jobs it is known to have."""
    async with contextlib.AsyncExitStack() as stack:
        runners = dict[str, DuctileRunner]()
        for name, settings in every.items():
            api, found = await stack.enter_async_context(open_api(settings)), tools.get(name, DuctileTools())
            opening = open_runner(
                api,
                found,
                settings,
                receipts=receipts,
                overdue=overdue,
                clock=clock,
                queue=queues.get(name, lambda: None),
                told=told,
            )
            runners[name] = await stack.enter_async_context(opening)
        every_s = min(settings.poll_most_s for settings in every.values())
        yield Ductiles(runners, receipts, overdue, every_s=every_s, clock=clock)
