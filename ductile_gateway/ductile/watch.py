"""Waits for a job of a Ductile, until its end or the call's deadline, which is ours: Ductile cannot cancel.

An event is a hint to look. A Ductile that is away is waited for, beyond the deadline for as long as the answer is
wanted. A job that outlives its call is followed on, also across restarts.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NoReturn, Protocol

from ductile_gateway.calls.call import JobFacts, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.calls.excerpts import masked
from ductile_gateway.ductile.answers import Away, Lost, Unreadable
from ductile_gateway.ductile.api import Document, DuctileApi
from ductile_gateway.ductile.events import DuctileEvents
from ductile_gateway.ductile.jobs import Going, SeeLog, facts_of, last_error, read_job, read_log, read_tree
from ductile_gateway.ports import Clock
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from schemas.values import dataclass, replace

LAST_LOOK_S = 2.0
"""How long the last look may take: the agent waits for ten seconds longer than it says."""
MOST_STEPS = 20
SOON_S = 0.02
"""After an event: Ductile publishes it shortly before it has written down what it tells of."""
FOR = timedelta(hours=24)
"""As long as Ductile keeps its jobs. Its attempts at one take a quarter of an hour."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """All in seconds. first_s, most_s: between two looks. patience_s: at least for a Ductile that is away. settle_s:
    until a job shows whose start was not answered. in_flight_s: how long such a start may be on its way. again_first_s,
    again_most_s: before an event without an answer is sent again; each wait is twice as long as the one before."""

    first_s: float = 0.1
    most_s: float = 5.0
    patience_s: float = 30.0
    settle_s: float = 2.0
    in_flight_s: float = 15.0
    again_first_s: float = 1.0
    again_most_s: float = 10.0

    def after(self, waited_s: float) -> float:
        """How long to wait for the next look, after so many seconds: an eighth, so that no end is told much later."""
        return min(self.most_s, max(self.first_s, waited_s / 8))


@dataclass(frozen=True, slots=True)
class Job:
    """Ductile's job of a call; of a pipeline the first of several. `of`: plugin and command, where known. `ductile`:
    the name of the one that has it."""

    job_id: str
    pipeline: bool
    of: tuple[str, str] | None = None
    ductile: str = ""


@dataclass(frozen=True, slots=True)
class OverdueJob:
    key: str
    job: Job
    since: datetime


class Overdue(Protocol):
    async def add(self, key: str, job: Job, at: datetime) -> None:
        """Durable on return; again changes nothing. Raises TryAgain."""

    def all(self) -> list[OverdueJob]:
        """The longest overdue first. Raises TryAgain."""

    async def drop(self, key: str) -> None:
        """Durable on return. Raises TryAgain."""


class JobWatch:
    def __init__(
        self,
        api: DuctileApi,
        events: DuctileEvents,
        *,
        overdue: Overdue,
        pace: Pace,
        clock: Clock,
        secrets: Sequence[str],
    ) -> None:
        """`secrets`: what is not to be told of what a job has said."""
        self._secrets = secrets
        self._api = api
        self._events = events
        self._overdue = overdue
        self._pace = pace
        self._clock = clock

    async def verdict(self, job: Job, call: ToolCall) -> Verdict:
        """How the job ended, or `timeout` at the deadline of the call. Raises Lost where it is another call's job."""
        most, deadline_at = self.patient_until(call), call.deadline_at
        looked_at = begun_at = self._clock.now()
        delay_s, is_away = self._pace.first_s, False
        with self._events.of(job.job_id) as hint:
            while True:
                hint.clear()
                reading = await self._look_in_time(job, most)
                if not isinstance(reading, Going | Away):
                    return reading
                now = self._clock.now()
                if is_away:  # the time in which Ductile is away is not the tool's
                    deadline_at = min(most, deadline_at + (now - looked_at))
                is_away, looked_at = isinstance(reading, Away) and not reading.refused, now
                left_s = ((most if is_away else deadline_at) - now).total_seconds()
                if left_s <= 0:
                    return await self._given_up(job, call, reading)
                hinted = await _hinted(hint, within_s=min(delay_s, left_s))
                delay_s = SOON_S if hinted else self._pace.after((now - begun_at).total_seconds())

    def patient_until(self, call: ToolCall) -> datetime:
        at_least = self._clock.now() + timedelta(seconds=self._pace.patience_s)
        return max(call.deadline_at, call.wanted_until or at_least)

    async def _look_in_time(self, job: Job, most: datetime) -> Going | Away | Verdict:
        left_s = (most - self._clock.now()).total_seconds()
        try:
            async with asyncio.timeout(max(left_s, 0) + LAST_LOOK_S):
                return await self.look(job)
        except TimeoutError:
            return Away("Ductile did not answer in time")

    async def look(self, job: Job) -> Going | Away | Verdict:
        """What the job has come to by now, with what is known of how; Away where Ductile does not say."""
        reading = await self._readable(job)
        match reading:
            case Unknown(reason, ()):
                return Unknown(reason, jobs=(job.job_id,))
            case ToolOutcome():
                return replace(reading, job=await self._facts(job, is_error=reading.status == "error"))
        return reading

    async def _facts(self, job: Job, *, is_error: bool) -> JobFacts:
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                ids = [job.job_id]
                if job.pipeline:
                    ids = [str(step.get("job_id")) for step in await self._api.tree(job.job_id)][:MOST_STEPS]
                logs = await asyncio.gather(*(self._api.log(step, results=False) for step in ids))
        except (Away, Unreadable, TimeoutError):
            return JobFacts(job.job_id)
        return facts_of(job.job_id, [entry for log in logs for entry in log], is_error=is_error, secrets=self._secrets)

    async def _readable(self, job: Job) -> Going | Away | Verdict:
        try:
            return await self._reading(job)
        except Away as error:
            return error
        except Lost:
            raise
        except Unreadable:
            return failed("bad_output", "the result of the job cannot be read", retryable=False)
        except Exception:  # a status that is an object, levels without number: it has ended, or it never will
            log.exception("what Ductile says of a job cannot be read", extra={"job_id": job.job_id})
            return failed("bad_output", "what Ductile says of the job cannot be read", retryable=False)

    async def _reading(self, job: Job) -> Going | Verdict:
        try:
            found = await self._api.job(job.job_id)
        except Unreadable:
            return read_log(await self._log(job, results=False))
        if found is None:
            entries = await self._log(job, results=True)
            return read_log(entries) if entries else Unknown(f"Ductile knows nothing of its job {job.job_id} any more")
        _check(job, found)
        reading = read_job(found)
        if job.pipeline and not isinstance(reading, Going):
            return await self._of_pipeline(job)
        return read_log(await self._log(job, results=False)) if isinstance(reading, SeeLog) else reading

    async def _log(self, job: Job, *, results: bool) -> list[Document]:
        try:
            entries = await self._api.log(job.job_id, results=results)
        except Unreadable:
            if not results:
                raise
            entries = await self._api.log(job.job_id, results=False)
        for entry in entries:
            _check(job, entry)
        return entries

    async def _of_pipeline(self, job: Job) -> Going | Verdict:
        before = await self._api.tree(job.job_id)
        await asyncio.sleep(SOON_S)
        again = await self._api.tree(job.job_id)
        return read_tree(again) if len(again) == len(before) else Going()

    async def _given_up(self, job: Job, call: ToolCall, reading: Going | Away) -> ToolOutcome:
        await self._overdue.add(call.key, job, self._clock.now())
        why, said = f"job {job.job_id} of Ductile has not ended", ""
        if isinstance(reading, Away):
            why = f"Ductile is away ({reading})"
        elif reading.retrying:
            said = await self._last_error(job)
            why = f"Ductile is still trying its job {job.job_id}, because of: {said}"
        timeout = failed("timeout", f"the deadline has passed: {why}", retryable=True)
        return replace(timeout, job=JobFacts(job.job_id, last_error=said))

    async def _last_error(self, job: Job) -> str:
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                tree = await self._api.tree(job.job_id)
        except (Away, Unreadable, TimeoutError):
            return "it did not say what"
        return masked(last_error(tree), self._secrets)


def _check(job: Job, found: Document) -> None:
    """Raises Lost where the answer to the start was another's, as of a proxy that keeps answers."""
    plugin, command = job.of or ("", "")
    if job.of and (found.get("plugin", plugin), found.get("command", command)) != job.of:
        raise Lost(f"the answer to its start named the job {job.job_id} of Ductile, which is one of another command")


async def _hinted(hint: asyncio.Event, *, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await hint.wait()
    except TimeoutError:
        return False


Look = Callable[[Job], Awaitable[Going | Away | Verdict]]
Tell = Callable[[str, Verdict], Awaitable[bool]]
"""Takes the key of a call and what came of it after all; False while the call has no answer yet."""


class LateJobs:
    """Jobs that outlived the deadlines of their calls, all polled every `every_s` seconds."""

    def __init__(self, look: Look, overdue: Overdue, *, every_s: float, clock: Clock) -> None:
        self._look_at = look
        self._overdue = overdue
        self._every_s = every_s
        self._clock = clock

    async def follow(self, tell: Tell) -> NoReturn:
        while True:
            try:
                for late in self._overdue.all():
                    await self._look(late, tell)
            except TryAgain as error:
                log.warning("late results are looked for again later", extra={"why": str(error)})
            await asyncio.sleep(self._every_s)

    def waiting(self) -> Mapping[str, int]:
        """How many, by the name of their Ductile."""
        return Counter(late.job.ductile for late in self._overdue.all())

    async def _look(self, late: OverdueJob, tell: Tell) -> None:
        over = self._clock.now() >= late.since + FOR
        try:
            reading = await self._look_at(late.job)
            if isinstance(reading, Going | Away):
                if not over:
                    return
                reading = Unknown(f"job {late.job.job_id} of Ductile had not ended {FOR} after the deadline")
            is_told = await tell(late.key, reading)
        except (TryAgain, Broken, Misconfigured):
            raise
        except Exception:  # what cannot be told now cannot be told in an hour
            log.exception("what came of a late job cannot be told", extra={"call": late.key, "job": late.job.job_id})
            is_told = True
        if is_told or over:
            await self._overdue.drop(late.key)
