"""Runs calls in one or several Ductiles: the port ToolRunner.

    intent and receipt durable ─▶ start ─▶ job id durable ─▶ wait for the job ─▶ verdict

An API call is sent once, unless it is certain that Ductile made no job of it. The API has no idempotency keys, so the
call id is part of the payload: the job whose result shows it is the one. Otherwise the outcome is Unknown. Before each
write Ductile has to list its jobs, or to say that it is healthy: if a proxy answered in its place, the outcome would be
unknown. A job that outlives its call is followed on, also across restarts.

Events are for routes whose plugin acts once per dedupe key. An unanswered event is sent again under the same key until
the deadline, after a pause: Ductile knows the key only once a job has succeeded. After a lost start a refusal does not
prove that nothing ran.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import httpx2
from pydantic import JsonValue

from ductile_gateway.calls.call import (
    CALL_ID,
    EPOCH,
    MARK,
    CallRequest,
    Job,
    NeverStarted,
    Receipt,
    ToolCall,
    Unknown,
    Verdict,
    Way,
    failed,
)
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ductile import api
from ductile_gateway.ductile.api import DuctileApi, DuctileRefused, Endpoint, RelayIngress, Unavailable
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import DuctileHealth, OnStart, StartAttempt, Unfinished
from ductile_gateway.ductile.settings import DuctileSettings, full_name, own_name, owner
from ductile_gateway.ductile.watch import Found, JobWatch, Timing
from ductile_gateway.ports import Begin
from ductile_gateway.webhooks.signatures import relay_event
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from groundwork.service.machine import utc_now
from schemas.events import RESERVED_KEYS
from schemas.status import Finding
from schemas.values import dataclass, replace

HEALTHY_WITHIN_S, COME_BACK_S, QUEUE_COME_BACK_S = 5.0, 1.0, 5.0

FOLLOWED_FOR = timedelta(hours=24)
"""As long as Ductile keeps its jobs."""

ReportLate = Callable[[str, Verdict], Awaitable[bool]]
"""Takes the key of a call and its late verdict; returns False while the call has no answer yet."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class DuctileRunner:
    """`ingress`: for routes that are called by events."""

    settings: DuctileSettings
    api: DuctileApi
    ingress: RelayIngress | None
    tools: DuctileTools
    ledger: Ledger
    timing: Timing
    health: DuctileHealth
    on_start: OnStart

    def __post_init__(self) -> None:
        self.watch = JobWatch(self.api, self.ledger, self.timing)
        kinds = self.settings.relay.event_types() if self.settings.relay else {}
        self.kinds = {full_name(route, of=self.settings.name): kind for route, kind in kinds.items()}
        """Types of events by route."""

    async def run(self, call: ToolCall, begin: Begin) -> Verdict:
        """Raises TryAgain if nothing was sent, and what `begin` raises."""
        depth, most = self.health.queue, self.settings.queue_most
        if depth is not None and most is not None and depth > most:
            raise TryAgain(f"Ductile has {depth} jobs waiting or running, more than {most}", QUEUE_COME_BACK_S)
        await begin(receipt := await self._receipt(call))
        start = await self._attempt(call)
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
        row = await self.ledger.find(call.key)
        if not row or not (receipt := row.begun):
            return NeverStarted()
        if receipt.job_id is None:
            return await self._found(call, receipt)
        return await self._watched(call, receipt.job_id, receipt)

    async def _found(self, call: ToolCall, receipt: Receipt) -> Verdict:
        found: Found
        match receipt.way:
            case "event":
                found = await self._sent_again(call)
            case "pipeline":  # the plugin of its first job is unknown
                why = "its start in Ductile was not answered, and a pipeline's jobs do not show whose they are"
                found = Unknown(why)
            case _:
                found = await self.watch.find(call, receipt, has_id=self._has_id(call))
        if isinstance(found, NeverStarted):
            await self.ledger.never_sent(call.key)
        return await self._accepted(call, found, receipt) if isinstance(found, str) else found

    async def _lost(self, call: ToolCall, receipt: Receipt, why: str) -> Verdict:
        log.warning("an answer was lost", extra=call.asked.facts | {"why": why})
        found = await self._found(call, receipt)
        return replace(found, reason=f"{found.reason} ({why})") if isinstance(found, Unknown) else found

    async def _accepted(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        self.watch.known_jobs.append(job_id)
        try:
            await self.ledger.accepted(call.key, job_id)
        except TryAgain as error:  # this process knows the job: only a crash would leave it in doubt
            log.warning("a job id is not stored", extra=call.asked.facts | {"job_id": job_id, "why": str(error)})
        return await self._watched(call, job_id, receipt)

    async def _watched(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        of = (self._plugin(call), call.command) if receipt.way == "plugin" else None
        job = Job(job_id, pipeline=receipt.way != "plugin", of=of, ductile=self.settings.name)
        try:
            return await self.watch.verdict(job, call)
        except api.AnswerLost as error:
            return await self._lost(call, receipt, str(error))

    def _way(self, call: ToolCall) -> Way:
        if call.plugin in self.kinds:
            return "event"
        return "pipeline" if call.plugin in self.tools.pipelines else "plugin"

    async def _receipt(self, call: ToolCall) -> Receipt:
        """Raises TryAgain for a write by the API while Ductile is unavailable."""
        way, newest = self._way(call), None
        if way == "event" or call.may_repeat:
            return Receipt(utc_now(), way=way)
        try:
            async with asyncio.timeout(HEALTHY_WITHIN_S):
                if way == "plugin":
                    with contextlib.suppress(api.Unavailable, api.UnreadableAnswer):
                        jobs = await self.api.jobs(plugin=self._plugin(call), command=call.command, most=1)
                        newest = str(jobs[0].get("job_id")) if jobs else ""
                if newest is None:  # a list of jobs is Ductile's own
                    await self.api.health()
        except (api.Unavailable, TimeoutError) as error:
            raise TryAgain(f"not sent: {str(error) or 'Ductile does not answer'}", COME_BACK_S) from error
        return Receipt(utc_now(), way=way, newest=newest)

    async def _attempt(self, call: ToolCall) -> StartAttempt:
        path, began_at, result = "", utc_now(), dict[str, Any]()
        try:
            path = self._path(call)
            result = {"outcome": "accepted", "status": httpx2.codes.ACCEPTED, "job_id": await self._start(call)}
        except DuctileRefused as refusal:
            result = {"outcome": "refused", "status": refusal.status or None, "why": str(refusal)}
        except (api.NotSent, api.AnswerLost) as error:
            result = {"outcome": "lost" if isinstance(error, api.AnswerLost) else "not_sent", "why": str(error)}
        return StartAttempt(path=path.partition("?")[0], began_at=began_at, ended_at=utc_now(), **result)

    async def _start(self, call: ToolCall) -> str:
        """Id of the job. Raises NotSent, DuctileRefused or AnswerLost; only after the last there may be a job."""
        payload = {name: value for name, value in call.payload.items() if name not in (CALL_ID, MARK)}
        if self._has_id(call):
            payload |= {CALL_ID: call.key} | ({MARK: True} if call.asked.request.untrusted else {})
        if self.ingress and call.plugin in self.kinds:
            return await self._send_event(self.ingress, call, payload)
        return await self.api.start(self._path(call), payload)

    def _path(self, call: ToolCall) -> str:
        if self.ingress and call.plugin in self.kinds:
            return self.ingress.us.ingress_path
        if self._way(call) == "pipeline":
            return Endpoint.PIPELINE.path_of(self._plugin(call))
        return Endpoint.CALL.path_of(self._plugin(call), call.command)

    async def _send_event(self, ingress: RelayIngress, call: ToolCall, payload: dict[str, JsonValue]) -> str:
        kind = self.kinds[call.plugin]
        event = relay_event(kind, call.key, *with_correlation(call.asked, payload), peer=ingress.us.peer)
        async with api.start_within(self.settings):
            if job_id := await ingress.post(event):
                return job_id
        raise DuctileRefused(httpx2.codes.ACCEPTED, f"no pipeline listens to {kind}: it needs one with `on: {kind}`")

    async def _sent_again(self, call: ToolCall) -> Found:
        if call.plugin not in self.kinds:
            return Unknown("its event in Ductile was not answered, and its route is not called by events any more")
        if not call.complete:
            return Unknown("its event was not answered, and the same event cannot be made any more")
        pause_s = self.timing.again_first_s
        while (call.deadline_at - utc_now()).total_seconds() > pause_s:
            await asyncio.sleep(pause_s)
            try:
                return await self._start(call)
            except DuctileRefused as refusal:
                return Unknown(f"its event was sent and not answered, and when it was sent again {refusal}")
            except (api.NotSent, api.AnswerLost):
                pause_s = min(2 * pause_s, self.timing.again_most_s)
        return Unknown("its event was sent to Ductile, and not answered before the deadline")

    def _has_id(self, call: ToolCall) -> bool:
        return self.settings.send_call_id and (call.plugin, call.command) not in self.tools.closed

    def _plugin(self, call: ToolCall) -> str:
        return own_name(call.plugin, of=self.settings.name)


def with_correlation(
    asked: CallRequest, payload: dict[str, JsonValue]
) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """Payload and baggage, both with correlation keys; those of a model or tool are dropped (RFC-103, reserved keys).
    With the capability a pipeline can answer by its own event."""
    request = asked.request
    correlation: dict[str, JsonValue] = {"run_id": request.run_id, "step": request.step, "tool": request.tool}
    correlation |= {"capability": request.capability} if request.capability else {}
    arguments = {name: value for name, value in payload.items() if name not in RESERVED_KEYS}
    call_id: dict[str, JsonValue] = {CALL_ID: payload[CALL_ID]} if CALL_ID in payload else {}
    return arguments | correlation | {"attempt": request.attempt}, correlation | call_id


@dataclass(eq=False)
class Ductiles:
    """`runners` by the name of their Ductile. `every_s`: between polls of jobs that outlived their calls."""

    runners: Mapping[str, DuctileRunner]
    ledger: Ledger
    every_s: float
    finds_anywhere = True

    async def run(self, call: ToolCall, begin: Begin) -> Verdict:
        return await self.runners[owner(call.plugin, self.runners)].run(call, begin)

    async def resume(self, call: ToolCall) -> Verdict:
        if its := self.runners.get(owner(call.plugin, self.runners)):
            return await its.resume(call)
        return Unknown(f"it was made in a Ductile that the settings do not name any more ({call.plugin})")

    async def forget(self, key: str) -> None:
        """The ledger has all that is kept."""

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
                opening = api.open_relay_ingress(its.url, us, timeout_s=its.request_timeout_s, transport=transport)
                ingress = await opened.enter_async_context(opening)
            runner = runners[name] = DuctileRunner(
                settings=its,
                api=await opened.enter_async_context(api.open_api(its, transport)),
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
