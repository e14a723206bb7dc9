"""Finds the job of an unanswered start, and waits for a job until it ends or the deadline of its call passes.

There is no job of a start if Ductile lists all jobs of the command since just before, each of them belongs to another
call, and this holds for longer than a request can be in flight (Ductile drops a request that it has not read within ten
seconds). If there was no job before, Ductile must not have restarted meanwhile: it may have lost its jobs.

Ductile cannot cancel a job. While it is unavailable, the wait goes on beyond the deadline for as long as the answer is
wanted. Events are hints that a job may have ended; jobs are polled as well, because Ductile cuts its stream every ten
minutes, drops events that are not read at once and restarts its ids. All waiting jobs are polled when it begins.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import field
from datetime import datetime, timedelta
from typing import NoReturn

from pydantic import JsonValue

from ductile_gateway.calls.artifacts import printable
from ductile_gateway.calls.call import (
    Job,
    JobFacts,
    NeverStarted,
    Receipt,
    ToolCall,
    ToolOutcome,
    Unknown,
    Verdict,
    failed,
)
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ductile import api
from ductile_gateway.ductile.api import Document, DuctileApi, DuctileRefused, Unavailable
from ductile_gateway.ductile.jobs import (
    FINISHED,
    NO_ERROR,
    Unfinished,
    facts_of,
    instant,
    last_error,
    read_job,
    read_log,
    read_tree,
)
from ductile_gateway.ductile.settings import own_name
from ductile_gateway.plugins.response import MAX_MESSAGE, quoted
from groundwork.service.machine import monotonic, set_within, utc_now
from schemas.bounded import json_object
from schemas.values import dataclass, replace

CLOCKS_DIFFER_BY = timedelta(seconds=30)
MOST_NAMED, MOST_LISTED, REMEMBERED = 5, 200, 2000
LAST_LOOK_S = 2.0
"""Limit of the last poll: the agent waits ten seconds longer than the deadline."""
MOST_STEPS = 20
SOON_S = 0.02
"""Delay of a poll after an event: Ductile publishes it shortly before it stores the job."""
LEAST_SLEEP = timedelta(seconds=1)
SILENT_AT_MOST_S = 45.0
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
REFUSED_PAUSE_S = 60.0
"""A refusal may pass: of a proxy, of a limit of requests, or of a token that is being changed."""
ENDINGS = frozenset({"job.completed", "job.failed", "job.timed_out", "job.skipped", "job.retry_exhausted"})

Found = str | NeverStarted | Unknown
"""Id of the job; or there is none and will be none; or unknown, with the jobs that it may be."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """first_s, most_s: between two polls. patience_s: shortest wait for an unavailable Ductile. settle_s: until the job
    of an unanswered start shows. in_flight_s: how long such a start may still arrive. again_first_s, again_most_s:
    until an unanswered event is sent again, with doubling delays."""

    first_s: float = 0.1
    most_s: float = 5.0
    patience_s: float = 30.0
    settle_s: float = 2.0
    in_flight_s: float = 15.0
    again_first_s: float = 1.0
    again_most_s: float = 10.0

    def after(self, waited_s: float) -> float:
        """Delay of the next poll: an eighth of the wait so far."""
        return min(self.most_s, max(self.first_s, waited_s / 8))

    def patient_until(self, call: ToolCall) -> datetime:
        return max(call.deadline_at, call.asked.request.deadline_at or utc_now() + timedelta(seconds=self.patience_s))


@dataclass(eq=False)
class JobWatch:
    """`follow_events` may run beside the calls: one stream for all waiting jobs. `known_jobs`: those of other calls."""

    api: DuctileApi
    ledger: Ledger
    timing: Timing
    known_jobs: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _waiting: dict[str, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.secrets = self.api.settings.secrets()

    @contextlib.contextmanager
    def hint_for(self, job_id: str) -> Iterator[asyncio.Event]:
        hint = self._waiting.setdefault(job_id, asyncio.Event())
        try:
            yield hint
        finally:
            self._waiting.pop(job_id, None)

    async def follow_events(self) -> NoReturn:
        """Follows the stream until cancelled. Of several refusals or errors in a row, the first is logged."""
        pause_s, failing, clock = SHORTEST_PAUSE_S, False, asyncio.get_running_loop()
        while True:
            begun_at, is_first, failing = clock.time(), not failing, False
            try:
                await self._listen()
            except Exception as error:
                failing = not isinstance(error, Unavailable) or isinstance(error, DuctileRefused)
                if failing and is_first:
                    unknown = None if isinstance(error, Unavailable) else error
                    log.warning("jobs are polled without Ductile's events", extra={"why": str(error)}, exc_info=unknown)
            has_lasted = clock.time() - begun_at >= LONGEST_PAUSE_S
            pause_s = SHORTEST_PAUSE_S if has_lasted else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(REFUSED_PAUSE_S if failing else pause_s)

    async def _listen(self) -> None:
        async with self.api.events(silent_s=SILENT_AT_MOST_S) as stream:
            for hint in self._waiting.values():
                hint.set()
            async for event in stream:
                ended = json_object(event.data.encode()) if event.event in ENDINGS else None
                if waiting := self._waiting.get(str(ended and ended.get("job_id"))):
                    waiting.set()

    async def verdict(self, job: Job, call: ToolCall) -> Verdict:
        """Outcome of the job, or `timeout` at the deadline. Raises AnswerLost as `poll`."""
        most, deadline_at = self.timing.patient_until(call), call.deadline_at
        polled_at = begun_at = utc_now()
        awake_at = monotonic()
        delay_s, is_away = self.timing.first_s, False
        with self.hint_for(job.job_id) as hint:
            while True:
                hint.clear()
                within_s = max((most - utc_now()).total_seconds(), 0) + LAST_LOOK_S
                reading = await self.poll(job, within_s=within_s)
                if not isinstance(reading, Unfinished | Unavailable):
                    return reading
                now, awake = utc_now(), monotonic()
                slept = now - polled_at - timedelta(seconds=awake - awake_at)
                if slept > LEAST_SLEEP:  # of the machine, or its clock was set forward
                    deadline_at, most = deadline_at + slept, most + slept
                elif is_away:  # the deadline is the tool's: it does not run while Ductile is unavailable
                    deadline_at = min(most, deadline_at + (now - polled_at))
                awake_at = awake
                is_away, polled_at = isinstance(reading, Unavailable) and not isinstance(reading, DuctileRefused), now
                left_s = ((most if is_away else deadline_at) - now).total_seconds()
                if left_s <= 0:
                    return await self._timeout(job, call, reading)
                hinted = await set_within(hint, min(delay_s, left_s))
                delay_s = SOON_S if hinted else self.timing.after((now - begun_at).total_seconds())

    async def poll(self, job: Job, *, within_s: float | None = None) -> Unfinished | Unavailable | Verdict:
        """Raises AnswerLost if the job is another command's. `within_s` limits the reading, not the facts."""
        try:
            async with asyncio.timeout(within_s):
                reading = await self._reading(job)
        except TimeoutError:
            return Unavailable("Ductile did not answer in time")
        except Unavailable as error:
            return error
        except api.AnswerLost:
            raise
        except Exception:  # such as a status that is an object: polling again does not help
            log.exception("Ductile's answer about a job cannot be read", extra={"job_id": job.job_id})
            reading = failed("bad_output", "what Ductile says of the job cannot be read", retryable=False)
        match reading:
            case Unknown(reason, ()):
                return Unknown(quoted(reason, self.secrets), jobs=(job.job_id,))
            case ToolOutcome(message=message):
                facts = await self._facts(job, is_error=reading.status == "error")
                return replace(reading, message=message and quoted(message, self.secrets), job=facts)
        return reading

    async def _facts(self, job: Job, *, is_error: bool) -> JobFacts:
        with contextlib.suppress(Unavailable, api.UnreadableAnswer, TimeoutError):
            async with asyncio.timeout(LAST_LOOK_S):
                ids = [job.job_id]
                if job.pipeline:
                    ids = [str(step.get("job_id")) for step in await self.api.tree(job.job_id)][:MOST_STEPS]
                logs = await asyncio.gather(*(self.api.log(step, results=False) for step in ids))
                entries = [entry for log in logs for entry in log]
                return facts_of(job.job_id, entries, is_error=is_error, secrets=self.secrets)
        return JobFacts(job.job_id)

    async def _reading(self, job: Job) -> Unfinished | Verdict:
        found, reading = Document(), None
        with contextlib.suppress(api.UnreadableAnswer):
            answer = await self.api.job(job.job_id)
            if answer is None:
                return await self._logged(job, Unknown(f"Ductile knows nothing of its job {job.job_id} any more"))
            _check(job, answer)
            found, reading = answer, read_job(answer)
        if isinstance(reading, Unfinished):
            return reading
        if job.pipeline:
            return await self._of_tree(job)
        try:
            return reading or await self._logged(job, Unfinished())
        except DuctileRefused as refusal:
            if not (refusal.own and found):
                raise
            return read_log([found])  # the token may not see the log

    async def _of_tree(self, job: Job) -> Unfinished | Verdict:
        try:
            before = await self.api.tree(job.job_id)
            await asyncio.sleep(SOON_S)
            again = await self.api.tree(job.job_id)
        except api.UnreadableAnswer as error:
            why = f"the steps of the pipeline cannot be read ({error}): one may have written no JSON, see Ductile's log"
            return await self._logged(job, failed("bad_output", why, retryable=False))
        return read_tree(again) if len(again) == len(before) else Unfinished()

    async def _logged(self, job: Job, otherwise: Unfinished | Verdict) -> Unfinished | Verdict:
        """The end of the job in the log, which is that of a pipeline only if its first job has failed."""
        reading = read_log(await self._log(job))
        is_first = job.pipeline and isinstance(reading, ToolOutcome) and reading.status != "error"
        return otherwise if is_first or isinstance(reading, Unfinished) else reading

    async def _log(self, job: Job) -> list[Document]:
        try:
            entries = await self.api.log(job.job_id, results=True)
        except api.UnreadableAnswer:
            entries = await self.api.log(job.job_id, results=False)
        for entry in entries:
            _check(job, entry)
        return entries

    async def find(self, call: ToolCall, receipt: Receipt, *, has_id: bool) -> Found:
        """Looks for the job of an unanswered start by the API. `has_id`: it carries its call id."""
        delay_s, now = self.timing.first_s, utc_now()
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

    async def _possible(self, call: ToolCall, receipt: Receipt) -> tuple[dict[str, bool], bool]:
        """Ids of jobs that may be the call's, with True for ended ones; and True if the list is complete."""
        plugin = own_name(call.plugin, of=self.api.settings.name)
        listed = await self.api.jobs(plugin=plugin, command=call.command, most=MOST_LISTED)
        since = list(_since(listed, receipt))
        is_complete = bool(receipt.newest) and len(since) < len(listed)
        if receipt.newest == "" and len(listed) < MOST_LISTED:  # a Ductile that has lost its jobs lists none, too
            uptime, passed = (await self.api.health()).get("uptime_seconds"), utc_now() - receipt.begun_at
            is_complete = isinstance(uptime, int) and uptime >= passed.total_seconds()
        ids = {str(job.get("job_id")): job.get("status") in FINISHED for job in since}
        return {job_id: ended for job_id, ended in ids.items() if job_id not in self.known_jobs}, is_complete

    async def _job_with_id(self, call: ToolCall, receipt: Receipt) -> str | None:
        plugin = own_name(call.plugin, of=self.api.settings.name)
        entries = await self.api.logged_with(call.key, plugin=plugin, command=call.command)
        found = {api.job_id_in(one) for one in entries if _is_after(one.get("created_at"), receipt.begun_at)}
        return found.pop() if len(found) == 1 else None

    async def _timeout(self, job: Job, call: ToolCall, reading: Unfinished | Unavailable) -> ToolOutcome:
        await self.ledger.outlived(call.key, job, utc_now())
        why, error = f"job {job.job_id} of Ductile has not ended", ""
        if isinstance(reading, Unavailable):
            why = f"Ductile is away ({reading})"
        elif reading.retrying:
            error = NO_ERROR
            with contextlib.suppress(Unavailable, api.UnreadableAnswer, TimeoutError):
                async with asyncio.timeout(LAST_LOOK_S):
                    text = last_error(await self.api.tree(job.job_id))
                    error = printable(quoted(text, self.secrets), MAX_MESSAGE)
            why = f"Ductile is still trying its job {job.job_id}, because of: {error}"
        timeout = failed("timeout", f"the deadline has passed: {why}", retryable=True)
        return replace(timeout, job=JobFacts(job.job_id, last_error=error))


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


def _check(job: Job, found: Document) -> None:
    """Raises AnswerLost for a job of another command: a caching proxy answered the start."""
    plugin, command = job.of or ("", "")
    if job.of and (found.get("plugin", plugin), found.get("command", command)) != job.of:
        raise api.AnswerLost(
            f"the answer to its start named the job {job.job_id} of Ductile, which is one of another command"
        )
