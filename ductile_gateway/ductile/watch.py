"""Waits for a job of a Ductile, until its end or the call's deadline, which is ours: Ductile cannot cancel.

An event is a hint to look. A Ductile that is away is waited for, beyond the deadline for as long as the answer is
wanted. A job that outlives its call is remembered as overdue.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from ductile_gateway.calls.call import JobFacts, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.calls.excerpts import masked
from ductile_gateway.ductile.answers import Away, Lost, Unreadable
from ductile_gateway.ductile.api import Document, DuctileApi
from ductile_gateway.ductile.events import DuctileEvents
from ductile_gateway.ductile.jobs import (
    Going,
    SeeLog,
    facts_of,
    hopeless,
    last_error,
    read_job,
    read_log,
    read_tree,
)
from ductile_gateway.plugins.response import MAX_MESSAGE
from ductile_gateway.ports import Clock
from schemas.values import dataclass, replace

LAST_LOOK_S = 2.0
"""How long the last look may take: the agent waits for ten seconds longer than it says."""
MOST_STEPS = 20
SOON_S = 0.02
"""After an event: Ductile publishes it shortly before it has written down what it tells of."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """All in seconds. first_s, most_s: between two looks. patience_s: at least for a Ductile that is away. settle_s:
    until a job shows whose start was not answered. in_flight_s: how long such a start may be on its way."""

    first_s: float = 0.1
    most_s: float = 5.0
    patience_s: float = 30.0
    settle_s: float = 2.0
    in_flight_s: float = 15.0

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
        secrets: Sequence[str] = (),
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
        patience = _Patience(call.deadline_at, self.patient_until(call))
        begun_at, delay_s, is_retried = self._clock.now(), self._pace.first_s, False
        with self._events.of(job.job_id) as hint:
            while True:
                hint.clear()
                reading = await self._look_in_time(job, patience)
                if not isinstance(reading, Going | Away):
                    return reading
                if isinstance(reading, Going) and reading.retrying and not is_retried:
                    is_retried, why = True, await self._last_error(job)
                    log.warning("Ductile tries again", extra=call.facts() | {"job_id": job.job_id, "why": why})
                    if mend := hopeless(why):
                        return await self._hopeless(job, call, f"{why}; {mend}")
                now = self._clock.now()
                left_s = patience.left_s(now, is_away=isinstance(reading, Away) and not reading.refused)
                if left_s <= 0:
                    return await self._given_up(job, call, reading)
                hinted = await _hinted(hint, within_s=min(delay_s, left_s))
                delay_s = SOON_S if hinted else self._pace.after((now - begun_at).total_seconds())

    def patient_until(self, call: ToolCall) -> datetime:
        at_least = self._clock.now() + timedelta(seconds=self._pace.patience_s)
        return max(call.deadline_at, call.wanted_until or at_least)

    async def _look_in_time(self, job: Job, patience: "_Patience") -> Going | Away | Verdict:
        left_s = (patience.most - self._clock.now()).total_seconds()
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
            return await self._forgotten(job)
        _check(job, found)
        reading = read_job(found)
        if isinstance(reading, Going):
            return reading
        if job.pipeline:
            return await self._of_pipeline(job)
        return read_log(await self._log(job, results=False)) if isinstance(reading, SeeLog) else reading

    async def _forgotten(self, job: Job) -> Going | Verdict:
        try:
            entries = await self._log(job, results=True)
        except Unreadable:
            entries = await self._log(job, results=False)
        return read_log(entries) if entries else Unknown(f"Ductile knows nothing of its job {job.job_id} any more")

    async def _log(self, job: Job, *, results: bool) -> list[Document]:
        entries = await self._api.log(job.job_id, results=results)
        for entry in entries:
            _check(job, entry)
        return entries

    async def _of_pipeline(self, job: Job) -> Going | Verdict:
        before = read_tree(jobs := await self._api.tree(job.job_id))
        if isinstance(before, Going):
            return before
        await asyncio.sleep(SOON_S)
        again = await self._api.tree(job.job_id)
        return read_tree(again) if len(again) == len(jobs) else Going()

    async def _hopeless(self, job: Job, call: ToolCall, why: str) -> ToolOutcome:
        await self._overdue.add(call.key, job, self._clock.now())
        told = failed("bad_output", f"the plugin gave no valid response: {why}"[:MAX_MESSAGE], retryable=False)
        return replace(told, job=JobFacts(job.job_id, last_error=why))

    async def _given_up(self, job: Job, call: ToolCall, reading: Going | Away) -> ToolOutcome:
        await self._overdue.add(call.key, job, self._clock.now())
        why = (
            f"Ductile is away ({reading})"
            if isinstance(reading, Away)
            else f"job {job.job_id} of Ductile has not ended"
        )
        said = ""
        if isinstance(reading, Going) and reading.retrying:
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


@dataclass(slots=True)
class _Patience:
    """How long a job is waited for: the time in which Ductile is away is not the tool's. `most`: in any case."""

    deadline_at: datetime
    most: datetime
    away_since: datetime | None = None

    def left_s(self, now: datetime, *, is_away: bool) -> float:
        if is_away:
            self.away_since = self.away_since or now
            return (self.most - now).total_seconds()
        if self.away_since:
            self.deadline_at = min(self.most, self.deadline_at + (now - self.away_since))
            self.away_since = None
        return (self.deadline_at - now).total_seconds()


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
