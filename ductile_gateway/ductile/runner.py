"""Runs calls in one Ductile: starts them by its API or by an event, finds lost starts, and waits for the jobs.

    intent and receipt durable ─▶ start ─▶ job id durable ─▶ wait for the job ─▶ verdict

An API call is sent once, unless it is certain that Ductile made no job of it. The API has no idempotency keys, so the
call id is part of the payload: the job whose result shows it is the one. There is none if Ductile lists all jobs of the
command since just before the start, each of them belongs to another call, and this holds for longer than a request can
be in flight (Ductile drops a request that it has not read within ten seconds). If there was no job before, Ductile must
not have restarted meanwhile: it may have lost its jobs. Otherwise the outcome is Unknown. Ductile's health is checked
before each write: if a proxy answered in its place, the outcome would be unknown.

Events are for routes whose plugin acts once per dedupe key. An unanswered event is sent again under the same key until
the deadline, after a pause: Ductile knows the key only once a job has succeeded. After a lost start a refusal does not
prove that nothing ran.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any

import httpx2
from pydantic import JsonValue

from ductile_gateway.calls.call import (
    CALL_ID,
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
from ductile_gateway.ductile.api import Document, DuctileApi, DuctileRefused, Endpoint
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import FINISHED, DuctileHealth, OnStart, StartAttempt, instant
from ductile_gateway.ductile.relay import RelayIngress
from ductile_gateway.ductile.settings import DuctileSettings, full_name, own_name
from ductile_gateway.ductile.watch import JobWatch, Timing
from ductile_gateway.ports import Begin, unrecorded
from ductile_gateway.webhooks.signatures import relay_event
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from schemas.events import RESERVED_KEYS
from schemas.values import dataclass, replace

CLOCKS_DIFFER_BY = timedelta(seconds=30)
MOST_NAMED, MOST_LISTED = 5, 200
REMEMBERED = 2000
HEALTHY_WITHIN_S, COME_BACK_S, QUEUE_COME_BACK_S = 5.0, 1.0, 5.0

Found = str | NeverStarted | Unknown
"""Id of the job; or there is none and will be none; or unknown, with the jobs that it may be."""

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
    known_jobs: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def __post_init__(self) -> None:
        self.watch = JobWatch(self.api, self.ledger, self.timing)
        kinds = self.settings.relay.event_types() if self.settings.relay else {}
        self.kinds = {full_name(route, of=self.settings.name): kind for route, kind in kinds.items()}
        """Types of events by route."""

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
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
        """Looks for the job of an unanswered start."""
        found: Found
        match receipt.way:
            case "event":
                found = await self._sent_again(call)
            case "pipeline":  # the plugin of its first job is unknown
                why = "its start in Ductile was not answered, and a pipeline's jobs do not show whose they are"
                found = Unknown(why)
            case _:
                found = await self._looked_for(call, receipt)
        if isinstance(found, NeverStarted):
            await self.ledger.never_sent(call.key)
        return await self._accepted(call, found, receipt) if isinstance(found, str) else found

    async def _lost(self, call: ToolCall, receipt: Receipt, why: str) -> Verdict:
        log.warning("an answer was lost", extra=call.asked.facts() | {"why": why})
        found = await self._found(call, receipt)
        return replace(found, reason=f"{found.reason} ({why})") if isinstance(found, Unknown) else found

    async def _accepted(self, call: ToolCall, job_id: str, receipt: Receipt) -> Verdict:
        self.known_jobs.append(job_id)
        try:
            await self.ledger.accepted(call.key, job_id)
        except TryAgain as error:  # this process knows the job: only a crash would leave it in doubt
            log.warning("a job id is not stored", extra=call.asked.facts() | {"job_id": job_id, "why": str(error)})
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
                await self.api.health()
                if way == "plugin":
                    with suppress(api.Unavailable, api.UnreadableAnswer):
                        jobs = await self.api.jobs(plugin=self._plugin(call), command=call.command, most=1)
                        newest = str(jobs[0].get("job_id")) if jobs else ""
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
            answer = await ingress.post(event)
        match answer.outcome:
            case "accepted":
                return answer.job_id
            case "unheard":
                raise DuctileRefused(answer.status, f"no pipeline listens to {kind}: it needs one with `on: {kind}`")
            case "unknown":
                raise api.AnswerLost(f"Ductile was sent an event, and answered {answer.status} without the id of a job")
        raise DuctileRefused(answer.status, f"{answer.reason}, to an event {kind}")

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

    async def _looked_for(self, call: ToolCall, receipt: Receipt) -> Found:
        has_id, delay_s, now = self._has_id(call), self.timing.first_s, utc_now()
        settled_at = now + timedelta(seconds=self.timing.settle_s)
        until, in_flight = self.timing.patient_until(call), timedelta(seconds=self.timing.in_flight_s)
        none_since, jobs = None, dict[str, bool]()
        while True:
            try:
                jobs, is_complete = await self._possible(call, receipt)
                if has_id and (job_id := await self._job_with_id(call, receipt)):
                    return job_id
            except (api.Unavailable, api.UnreadableAnswer) as error:
                none_since = None
                is_over = isinstance(error, DuctileRefused)
            else:
                now = utc_now()
                none_since = (none_since or now) if is_complete and not jobs else None
                if none_since and now >= none_since + in_flight:
                    return NeverStarted()
                is_over = none_since is None and (all(jobs.values()) or not has_id)
            if utc_now() >= (settled_at if is_over else until):
                why = "no job there shows its call id" if has_id else "it carries no call id to find its job by"
                return Unknown(f"its start in Ductile was not answered, and {why}", jobs=tuple(jobs)[:MOST_NAMED])
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, self.timing.most_s)

    def _has_id(self, call: ToolCall) -> bool:
        return self.settings.send_call_id and (call.plugin, call.command) not in self.tools.closed

    def _plugin(self, call: ToolCall) -> str:
        return own_name(call.plugin, of=self.settings.name)

    async def _possible(self, call: ToolCall, receipt: Receipt) -> tuple[dict[str, bool], bool]:
        """Ids of jobs that may be the call's, with True for ended ones; and True if the list is complete."""
        listed = await self.api.jobs(plugin=self._plugin(call), command=call.command, most=MOST_LISTED)
        since = list(_since(listed, receipt))
        is_complete = bool(receipt.newest) and len(since) < len(listed)
        if receipt.newest == "" and len(listed) < MOST_LISTED:  # a Ductile that has lost its jobs lists none, too
            is_complete = await self._has_run_since(receipt.begun_at)
        ids = {str(job.get("job_id")): job.get("status") in FINISHED for job in since}
        return {job_id: ended for job_id, ended in ids.items() if job_id not in self.known_jobs}, is_complete

    async def _has_run_since(self, begun_at: datetime) -> bool:
        uptime = (await self.api.health()).get("uptime_seconds")
        return isinstance(uptime, int) and uptime >= (utc_now() - begun_at).total_seconds()

    async def _job_with_id(self, call: ToolCall, receipt: Receipt) -> str | None:
        entries = await self.api.logged_with(call.key, plugin=self._plugin(call), command=call.command)
        found = {api.job_id_in(one) for one in entries if _is_after(one.get("created_at"), receipt.begun_at)}
        return found.pop() if len(found) == 1 else None


def _since(listed: list[Document], receipt: Receipt) -> Iterator[Document]:
    for job in listed:
        if job.get("job_id") == receipt.newest:
            return
        if receipt.newest is not None or _is_after(job.get("created_at"), receipt.begun_at):
            yield job


def _is_after(created_at: JsonValue, begun_at: datetime) -> bool:
    try:
        return instant(created_at) >= begun_at - CLOCKS_DIFFER_BY
    except ValueError:
        return False


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
