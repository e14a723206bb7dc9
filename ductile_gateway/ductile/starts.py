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
from typing import Literal

from pydantic import JsonValue

from ductile_gateway.calls.call import CALL_ID, MARK, NeverStarted, Receipt, ToolCall, Unknown, Way
from ductile_gateway.ductile.answers import Away, DuctileRefused, Unreadable
from ductile_gateway.ductile.api import CALL, PIPELINE, Document, DuctileApi
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import FINISHED
from ductile_gateway.ductile.watch import JobWatch, Pace
from ductile_gateway.ports import Clock
from schemas.values import dataclass

CLOCKS_DIFFER_BY = timedelta(seconds=30)
MOST_NAMED = 5
REMEMBERED = 2000

Found = str | NeverStarted | Unknown
"""The id of the job; or that there is none and will be none; or that it is unknown, with the jobs that may be it."""


Fate = Literal["accepted", "refused", "not_sent", "lost"]
"""`lost`: it was sent, and no answer says what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request to start a call. `path`: that of the URL. `status`: of Ductile's answer, where it gave one of its
    own."""

    path: str
    began_at: datetime
    ended_at: datetime
    fate: Fate
    status: int | None = None
    job_id: str | None = None


ToldOfSent = Callable[[ToolCall, Sent], None]
"""Returns at once and raises nothing."""


def untold(call: ToolCall, sent: Sent) -> None:
    """Tells nothing."""


def payload_of(call: ToolCall, *, with_id: bool) -> dict[str, JsonValue]:
    payload = {name: value for name, value in call.payload.items() if name not in (CALL_ID, MARK)}
    mark: dict[str, JsonValue] = {MARK: True} if call.asked.request.untrusted else {}
    return payload | {CALL_ID: call.key} | mark if with_id else payload


class ApiStarts:
    """`way` and `path`: how and where in Ductile a call is started. `start`: the job's id; raises NotSent,
    DuctileRefused or Lost, and only the last leaves open whether there is a job. `find`: what became of a call whose
    start was not answered. RelayStarts has the same."""

    def __init__(
        self, api: DuctileApi, watch: JobWatch, *, tools: DuctileTools, send_call_id: bool, pace: Pace, clock: Clock
    ) -> None:
        self._api = api
        self._watch = watch
        self._send_call_id = send_call_id
        self._pace = pace
        self._clock = clock
        self._known = deque[str](maxlen=REMEMBERED)
        self.tools = tools

    def way(self, call: ToolCall) -> Way:
        return "pipeline" if call.plugin in self.tools.pipelines else "plugin"

    def know(self, job_id: str) -> None:
        self._known.append(job_id)

    async def before(self, call: ToolCall) -> str | None:
        """The command's newest job, empty for none, None if that is not told. Raises Away unless a Ductile is there."""
        await self._api.health()
        if self.way(call) == "pipeline":
            return None
        try:
            jobs = await self._api.jobs(plugin=call.plugin, command=call.command, most=1)
        except (Away, DuctileRefused, Unreadable):
            return None
        return str(jobs[0].get("job_id")) if jobs else ""

    def path(self, call: ToolCall) -> str:
        endpoint, names = (
            (PIPELINE, [call.plugin]) if self.way(call) == "pipeline" else (CALL, [call.plugin, call.command])
        )
        return endpoint.path.partition("?")[0].format(*names)

    async def start(self, call: ToolCall) -> str:
        command = None if self.way(call) == "pipeline" else call.command
        return await self._api.start(call.plugin, command, payload_of(call, with_id=self._names_itself(call)))

    async def find(self, call: ToolCall, receipt: Receipt) -> Found:
        if self.way(call) == "pipeline":  # its first job is of a plugin that is not told
            return Unknown("its start in Ductile was not answered, and a pipeline's jobs do not show whose they are")
        names_itself, delay_s, now = self._names_itself(call), self._pace.first_s, self._clock.now()
        settled_at = now + timedelta(seconds=self._pace.settle_s)
        until, in_flight = self._watch.patient_until(call), timedelta(seconds=self._pace.in_flight_s)
        none_since, jobs = None, dict[str, bool]()
        while True:
            try:
                jobs, is_complete = await self._possible(call, receipt)
                if names_itself and (job_id := await self._shown(call, receipt)):
                    return job_id
            except (Away, Unreadable) as error:
                none_since = None
                is_over = isinstance(error, Away) and error.refused
            else:
                now = self._clock.now()
                none_since = (none_since or now) if is_complete and not jobs else None
                if none_since and now >= none_since + in_flight:
                    return NeverStarted()
                is_over = none_since is None and (all(jobs.values()) or not names_itself)
            if self._clock.now() >= (settled_at if is_over else until):
                return Unknown(_why(names_itself=names_itself), jobs=tuple(jobs)[:MOST_NAMED])
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, self._pace.most_s)

    def _names_itself(self, call: ToolCall) -> bool:
        return self._send_call_id and (call.plugin, call.command) not in self.tools.closed

    async def _possible(self, call: ToolCall, receipt: Receipt) -> tuple[dict[str, bool], bool]:
        """The jobs of which one may be the call's, by id, with whether each has ended; and whether there are no
        others."""
        listed = await self._api.jobs(plugin=call.plugin, command=call.command)
        since = list(_since(listed, receipt))
        is_complete = receipt.newest is not None and (not receipt.newest or len(since) < len(listed))
        ids = {str(job.get("job_id")): job.get("status") in FINISHED for job in since}
        return {job_id: ended for job_id, ended in ids.items() if job_id not in self._known}, is_complete

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
