"""Starting a call through the API of a Ductile, and finding the job of a start that was not answered.

A call is sent at most once, unless it is sure that Ductile made no job of it. Ductile has no idempotency, so the call
id travels in the payload: a job whose result shows it is the one. That there is none is sure when Ductile lists all
jobs of the command since just before the call was sent, none of them is of unknown origin, and it stays so, while
Ductile answers, for longer than a request can be on its way: Ductile drops one that it has not read within ten seconds,
and makes a job of it at once. What cannot be found out is Unknown.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from pydantic import JsonValue

from ductile_gateway.calls.call import CALL_ID, MARK, NeverStarted, Receipt, ToolCall, Unknown
from ductile_gateway.ductile.answers import Away, DuctileRefused, NotSent, Unreadable
from ductile_gateway.ductile.api import Document, DuctileApi
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import FINISHED
from ductile_gateway.ductile.watch import JobWatch, Pace
from ductile_gateway.ports import Clock
from schemas.values import dataclass

CLOCKS_DIFFER_BY = timedelta(seconds=30)
MOST_NAMED = 5
REMEMBERED = 2000

Found = str | NeverStarted | Unknown
"""The id of the job; or that there is none and will be none; or that nobody can tell, with the jobs that may be it."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The jobs of which one may be the call's, by whether they have ended. `all`: there are no others."""

    ended: tuple[str, ...]
    under_way: frozenset[str]
    all: bool

    @property
    def none(self) -> bool:
        return self.all and not self.ended and not self.under_way

    def named(self) -> tuple[str, ...]:
        return (*self.ended, *sorted(self.under_way))[:MOST_NAMED]


@dataclass(slots=True)
class _Waiting:
    """How long a job is looked for, by what was seen so far. `deadline_at`: for jobs that may yet show to be it."""

    settled_at: datetime
    patient_until: datetime
    in_flight: timedelta
    deadline_at: datetime
    seen: _Seen = _Seen((), frozenset(), all=False)
    suspects: frozenset[str] | None = None
    there_since: datetime | None = None

    def after(self, seen: _Seen, now: datetime) -> datetime:
        self.seen, self.there_since = seen, self.there_since or now
        # Once it had time to show, a job that is new is another's.
        had_time = self.suspects is not None and now >= self.settled_at
        self.suspects = seen.under_way & (self.suspects or frozenset()) if had_time else seen.under_way
        if seen.none:
            return self.patient_until
        return max(self.deadline_at, self.settled_at) if self.suspects else self.settled_at

    def without_a_look(self, *, is_refused: bool) -> datetime:
        self.there_since = None
        return self.settled_at if is_refused else self.patient_until

    def is_sure(self, now: datetime) -> bool:
        return self.seen.none and self.there_since is not None and now >= self.there_since + self.in_flight


class Starts(Protocol):
    def path(self, call: ToolCall) -> str:
        """That of the URL which is asked to start it."""

    async def start(self, call: ToolCall) -> str:
        """The job's id. Raises NotSent, DuctileRefused or Lost; only the last leaves open whether there is a job."""

    async def find(self, call: ToolCall, receipt: Receipt, /) -> Found:
        """What became of a call whose start was not answered."""


def payload_of(call: ToolCall, *, with_id: bool) -> dict[str, JsonValue]:
    payload = {name: value for name, value in call.payload.items() if name not in (CALL_ID, MARK)}
    mark: dict[str, JsonValue] = {MARK: True} if call.asked.request.untrusted else {}
    return payload | {CALL_ID: call.key} | mark if with_id else payload


class ApiStarts:
    def __init__(
        self,
        api: DuctileApi,
        watch: JobWatch,
        *,
        tools: DuctileTools,
        send_call_id: bool,
        pace: Pace,
        clock: Clock,
    ) -> None:
        self._api = api
        self._watch = watch
        self._tools = tools
        self._send_call_id = send_call_id
        self._pace = pace
        self._clock = clock
        self._known = deque[str](maxlen=REMEMBERED)

    def now_has(self, tools: DuctileTools) -> None:
        self._tools = tools

    def is_pipeline(self, route: str) -> bool:
        return route in self._tools.pipelines

    def know(self, job_id: str) -> None:
        self._known.append(job_id)

    async def before(self, call: ToolCall) -> str | None:
        """The command's newest job, empty for none, None if that is not told. Raises Away unless a Ductile is there."""
        await self._api.health()
        if self.is_pipeline(call.plugin):
            return None
        try:
            jobs = await self._api.jobs(plugin=call.plugin, command=call.command, most=1)
        except (Away, DuctileRefused, Unreadable):
            return None
        return str(jobs[0].get("job_id")) if jobs else ""

    def path(self, call: ToolCall) -> str:
        return f"/pipeline/{call.plugin}" if self.is_pipeline(call.plugin) else f"/plugin/{call.plugin}/{call.command}"

    async def start(self, call: ToolCall) -> str:
        payload = payload_of(call, with_id=self._names_itself(call))
        if self.is_pipeline(call.plugin):
            return await self._api.start_pipeline(call.plugin, payload)
        return await self._api.start(call.plugin, call.command, payload)

    async def find(self, call: ToolCall, receipt: Receipt) -> Found:
        if self.is_pipeline(call.plugin):  # its first job is of a plugin that is not told
            return Unknown("its start in Ductile was not answered, and a pipeline's jobs do not show whose they are")
        names_itself, waiting, delay_s = self._names_itself(call), self._waiting(call), self._pace.first_s
        while True:
            try:
                seen = await self._seen(call, receipt)
                if names_itself and (job_id := await self._shown(call, receipt)):
                    return job_id
                until = waiting.after(seen, self._clock.now())
                if waiting.is_sure(self._clock.now()):
                    return NeverStarted()
            except Unreadable:
                until = waiting.patient_until
            except Away as error:
                until = waiting.without_a_look(is_refused=error.refused)
            if self._clock.now() >= until:
                return Unknown(_why(names_itself=names_itself), jobs=waiting.seen.named())
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, self._pace.most_s)

    def _waiting(self, call: ToolCall) -> _Waiting:
        now = self._clock.now()
        return _Waiting(
            settled_at=now + timedelta(seconds=self._pace.settle_s),
            patient_until=self._watch.patient_until(call),
            in_flight=timedelta(seconds=self._pace.in_flight_s),
            deadline_at=call.deadline_at if self._names_itself(call) else now,
        )

    def _names_itself(self, call: ToolCall) -> bool:
        return self._send_call_id and (call.plugin, call.command) not in self._tools.closed

    async def _seen(self, call: ToolCall, receipt: Receipt) -> _Seen:
        listed = await self._api.jobs(plugin=call.plugin, command=call.command)
        since = list(_since(listed, receipt))
        complete = receipt.newest is not None and (not receipt.newest or len(since) < len(listed))
        ids = {str(job.get("job_id")): job.get("status") in FINISHED for job in since}
        possible = {job_id: ended for job_id, ended in ids.items() if job_id not in self._known}
        under_way = frozenset(job_id for job_id, ended in possible.items() if not ended)
        return _Seen(tuple(job_id for job_id, ended in possible.items() if ended), under_way, all=complete)

    async def _shown(self, call: ToolCall, receipt: Receipt) -> str | None:
        entries = await self._api.logged_with(call.key, plugin=call.plugin, command=call.command)
        found = {str(entry.get("job_id")) for entry in entries if _later(entry.get("created_at"), receipt.begun_at)}
        return found.pop() if len(found) == 1 else None


def _why(*, names_itself: bool) -> str:
    if names_itself:
        return "its start in Ductile was not answered, and no job there shows its call id"
    return "its start in Ductile was not answered, and it carries no call id to find its job by"


def _since(listed: list[Document], receipt: Receipt) -> Iterator[Document]:
    for job in listed:
        if job.get("job_id") == receipt.newest:
            return
        if receipt.newest is not None or _later(job.get("created_at"), receipt.begun_at):
            yield job


def _later(created_at: JsonValue, begun_at: datetime) -> bool:
    try:
        created = datetime.fromisoformat(str(created_at))
    except ValueError:
        return False
    created = created if created.tzinfo else created.replace(tzinfo=UTC)
    return created >= begun_at - CLOCKS_DIFFER_BY


ACCEPTED = 202
Fate = Literal["accepted", "refused", "not_sent", "lost"]
"""`lost`: it was sent, and no answer says what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """`path`: that of the URL. `status`: of Ductile's answer, where it gave one of its own."""

    path: str
    began_at: datetime
    ended_at: datetime
    fate: Fate
    status: int | None = None
    job_id: str | None = None


ToldOfSent = Callable[[ToolCall, Sent], None]
"""Returns at once and raises nothing."""


def untold(call: ToolCall, sent: Sent) -> None:
    """Nobody looks on."""


async def start_told(starts: Starts, call: ToolCall, *, told: ToldOfSent, clock: Clock) -> str:
    """Start the call; the id of its job. `told` is told how that went. Raises as Starts.start."""
    began_at, status, job_id = clock.now(), None, None
    fate: Fate = "lost"
    try:
        job_id = await starts.start(call)
        fate, status = "accepted", ACCEPTED
    except NotSent:
        fate = "not_sent"
        raise
    except DuctileRefused as refusal:
        fate, status = "refused", refusal.status or None
        raise
    finally:
        path, ended_at = starts.path(call), clock.now()
        told(call, Sent(path=path, began_at=began_at, ended_at=ended_at, fate=fate, status=status, job_id=job_id))
    return job_id
