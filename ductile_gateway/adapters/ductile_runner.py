"""Tools in a Ductile. Fills the port ToolRunner.

    receipt durable ─▶ POST ─▶ job id durable ─▶ wait for the job ─▶ verdict

Rules: a call is sent at most once. Ductile has no idempotency of its own, so a start without an answer is never
repeated: the call id travels in the payload, and a job whose result shows it is the one that was started. A job that
merely may be it is waited for, and not taken for it. What cannot be found out is Unknown.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from ductile_gateway.adapters.ductile_api import Away, DuctileApi, Lost, NotSent, Refused, Unreadable
from ductile_gateway.adapters.ductile_events import DuctileEvents
from ductile_gateway.adapters.ductile_watch import Job, JobWatch, Pace
from ductile_gateway.adapters.sqlite_receipts import Receipt, open_receipts
from ductile_gateway.core.breaker import Breaker
from ductile_gateway.core.calls import AlreadyStarted, NeverStarted, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.core.ductile_catalog import DuctileTools
from ductile_gateway.core.jobs import FINISHED
from ductile_gateway.ductile_settings import DuctileSettings
from ductile_gateway.errors import TryAgain
from ductile_gateway.ports import Clock

CALL_ID = "agentic_call_id"
COME_BACK_S = 1.0
CLOCKS_DIFFER_BY = timedelta(seconds=30)
"""How far Ductile's clock may be behind ours."""

log = logging.getLogger(__name__)


class Receipts(Protocol):
    """What is remembered of calls that were or may have been sent; durable on return but for `drop_soon`."""

    async def begin(self, key: str, at: datetime) -> bool: ...
    async def accepted(self, key: str, job_id: str) -> None: ...
    async def find(self, key: str) -> Receipt | None: ...
    async def drop(self, key: str) -> None: ...
    def drop_soon(self, key: str) -> None: ...


class DuctileRunner:
    """Runs calls in one Ductile, from `open_runner`. One gateway per folder of receipts."""

    def __init__(
        self,
        api: DuctileApi,
        receipts: Receipts,
        watch: JobWatch,
        *,
        tools: DuctileTools,
        settings: DuctileSettings,
        pace: Pace,
        clock: Clock,
    ) -> None:
        self._api = api
        self._receipts = receipts
        self._watch = watch
        self._tools = tools
        self._send_call_id = settings.send_call_id
        self._places = asyncio.Semaphore(settings.in_flight)
        self._breaker = Breaker(settings.breaker_failures, timedelta(seconds=settings.breaker_open_s))
        self._pace = pace
        self._clock = clock

    async def run(self, call: ToolCall) -> Verdict:
        """Run the call, once. Raises AlreadyStarted for a key that was begun and not forgotten, TryAgain when Ductile
        cannot be reached and nothing was sent."""
        if not await self._place_for(call):
            return failed("expired", "the deadline had passed before the call was sent to Ductile", retryable=True)
        try:
            return await self._run(call)
        finally:
            self._places.release()

    async def resume(self, call: ToolCall) -> Verdict:
        """The verdict on a call that may have been sent before: of the same job, if it is known or can be found."""
        receipt = await self._receipts.find(call.key)
        if receipt is None:
            return NeverStarted()
        if receipt.job_id is None:
            return await self._search(call, receipt.begun_at)
        return await self._watch.verdict(self._job(call, receipt.job_id), call)

    async def forget(self, key: str) -> None:
        """The verdict is recorded. A key that is not known is fine."""
        self._receipts.drop_soon(key)

    async def _place_for(self, call: ToolCall) -> bool:
        """Whether there is one of the places in Ductile before the deadline. It is to be released."""
        left_s = (call.deadline_at - self._clock.now()).total_seconds()
        if left_s <= 0:
            return False
        try:
            async with asyncio.timeout(left_s):
                return await self._places.acquire()
        except TimeoutError:
            return False

    async def _run(self, call: ToolCall) -> Verdict:
        if wait_s := self._breaker.wait_s(call.plugin, self._clock.now()):
            raise TryAgain(f"{call.plugin} in Ductile is left alone after several failures", wait_s)
        begun_at = self._clock.now()
        if not await self._receipts.begin(call.key, begun_at):
            raise AlreadyStarted(call.key)
        try:
            job_id = await self._start(call)
        except NotSent as error:
            await self._receipts.drop(call.key)
            raise TryAgain(str(error), self._failed(call.plugin)) from error
        except Refused as refusal:
            await self._receipts.drop(call.key)
            return self._refused(call, refusal)
        except Lost as error:
            log.warning("an answer was lost", extra={"call": call.key, "why": str(error)})
            self._failed(call.plugin)
            return await self._search(call, begun_at)
        self._breaker.succeeded(call.plugin)
        return await self._accepted(call, job_id)

    async def _start(self, call: ToolCall) -> str:
        if call.plugin in self._tools.pipelines:
            return await self._api.start_pipeline(call.plugin, self._payload(call))
        return await self._api.start(call.plugin, call.command, self._payload(call))

    def _payload(self, call: ToolCall) -> dict[str, JsonValue]:
        """Whatever the model gave as a call id, ours is the one that is sent."""
        payload = {name: value for name, value in call.payload.items() if name != CALL_ID}
        return payload | {CALL_ID: call.key} if self._names_itself(call) else payload

    async def _accepted(self, call: ToolCall, job_id: str) -> Verdict:
        try:
            await self._receipts.accepted(call.key, job_id)
        except TryAgain as error:  # the job runs, and this process knows it: only a crash would make it doubtful
            log.warning("a job id is not stored", extra={"call": call.key, "job_id": job_id, "why": str(error)})
        return await self._watch.verdict(self._job(call, job_id), call)

    async def _search(self, call: ToolCall, begun_at: datetime) -> Verdict:
        """Look for the job of a start that was not answered: as long as there is one that may yet show to be it."""
        if not self._names_itself(call) or call.plugin in self._tools.pipelines:
            return Unknown("its start in Ductile was not answered, and it carries no call id to find its job by")
        settled_at = self._clock.now() + timedelta(seconds=self._pace.settle_s)
        patient_until = self._watch.patient_until(call)
        suspects: frozenset[str] | None = None
        delay_s = self._pace.first_s
        while True:
            try:
                under_way = await self._under_way(call, begun_at)
                if job_id := await self._shown(call, begun_at):
                    return await self._accepted(call, job_id)
                # Once it had time to show, a job that is new is another's.
                suspects = under_way if suspects is None or self._clock.now() < settled_at else suspects & under_way
                ends_at = max(call.deadline_at, settled_at) if suspects else settled_at
            except (Away, Unreadable):
                ends_at = patient_until
            if self._clock.now() >= ends_at:
                return Unknown("its start in Ductile was not answered, and no job there shows its call id")
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, self._pace.most_s)

    async def _under_way(self, call: ToolCall, begun_at: datetime) -> frozenset[str]:
        """The jobs of the same command that are not finished, and of which one may be the call's."""
        jobs = await self._api.jobs(plugin=call.plugin, command=call.command)
        unfinished = (job for job in jobs if job.get("status") not in FINISHED)
        return frozenset(str(job.get("job_id")) for job in unfinished if _since(job.get("created_at"), begun_at))

    async def _shown(self, call: ToolCall, begun_at: datetime) -> str | None:
        """The one job whose result or stderr holds the call id, and that is not older than the call."""
        entries = await self._api.logged_with(call.key, plugin=call.plugin, command=call.command)
        found = {str(entry.get("job_id")) for entry in entries if _since(entry.get("created_at"), begun_at)}
        return found.pop() if len(found) == 1 else None

    def _names_itself(self, call: ToolCall) -> bool:
        return self._send_call_id and (call.plugin, call.command) not in self._tools.closed

    def _job(self, call: ToolCall, job_id: str) -> Job:
        return Job(job_id, pipeline=call.plugin in self._tools.pipelines)

    def _failed(self, plugin: str) -> float:
        """How long to wait after one more failure to reach the plugin, in seconds."""
        now = self._clock.now()
        if self._breaker.failed(plugin, now):
            log.warning("left alone after several failures", extra={"plugin": plugin})
        return self._breaker.wait_s(plugin, now) or COME_BACK_S

    def _refused(self, call: ToolCall, refusal: Refused) -> ToolOutcome:
        self._breaker.succeeded(call.plugin)
        if refusal.status == 429:
            raise TryAgain(str(refusal), COME_BACK_S) from refusal
        is_missing = any(words in str(refusal) for words in ("not found", "not supported"))
        is_of_arguments = refusal.status in (400, 413, 422) and not is_missing
        error_class = "invalid_arguments" if is_of_arguments else "configuration"
        return failed(error_class, str(refusal), retryable=False)


@contextlib.asynccontextmanager
async def open_runner(
    api: DuctileApi,
    tools: DuctileTools,
    settings: DuctileSettings,
    *,
    store: Path,
    clock: Clock,
    pace: Pace | None = None,
) -> AsyncIterator[DuctileRunner]:
    """A runner whose receipts are in the existing folder `store`. Raises Misconfigured when they cannot be used."""
    pace = pace or Pace(first_s=settings.poll_first_s, most_s=settings.poll_most_s)
    events = DuctileEvents(api)
    watch = JobWatch(api, events, pace=pace, clock=clock)
    async with open_receipts(store) as receipts:
        following = asyncio.create_task(events.follow()) if settings.events else None
        try:
            yield DuctileRunner(api, receipts, watch, tools=tools, settings=settings, pace=pace, clock=clock)
        finally:
            if following:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await watch.close()


def _since(created_at: JsonValue, begun_at: datetime) -> bool:
    try:
        created = datetime.fromisoformat(str(created_at))
    except ValueError:
        return False
    created = created if created.tzinfo else created.replace(tzinfo=UTC)
    return created >= begun_at - CLOCKS_DIFFER_BY
