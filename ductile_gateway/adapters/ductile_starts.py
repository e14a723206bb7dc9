"""Starting a call through the API of a Ductile, and finding the job of a start that was not answered.

Rules: a call is sent at most once. Ductile has no idempotency of its own, so a start without an answer is never
repeated: the call id travels in the payload, and a job whose result shows it is the one that was started. A job that
merely may be it is waited for, and not taken for it. What cannot be found out is Unknown.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pydantic import JsonValue

from ductile_gateway.adapters.ductile_api import Away, DuctileApi, Unreadable
from ductile_gateway.adapters.ductile_watch import JobWatch, Pace
from ductile_gateway.core.calls import ToolCall, Unknown
from ductile_gateway.core.ductile_catalog import DuctileTools
from ductile_gateway.core.jobs import FINISHED
from ductile_gateway.ports import Clock

CALL_ID = "agentic_call_id"
CLOCKS_DIFFER_BY = timedelta(seconds=30)
"""How far Ductile's clock may be behind ours."""


class Starts(Protocol):
    """A way of handing calls to a Ductile."""

    async def start(self, call: ToolCall) -> str:
        """The id of the job that was made of the call. Raises NotSent, Refused or Lost, of which only the last leaves
        open whether one was."""

    async def find(self, call: ToolCall, begun_at: datetime, /) -> str | Unknown:
        """The id of the job of a call that was begun then, and whose start was not answered."""


def payload_of(call: ToolCall, *, with_id: bool) -> dict[str, JsonValue]:
    """Whatever the model gave as a call id, ours is the one that is sent."""
    payload = {name: value for name, value in call.payload.items() if name != CALL_ID}
    return payload | {CALL_ID: call.key} if with_id else payload


class ApiStarts:
    """Fills Starts, by POST to a command or a pipeline."""

    def __init__(
        self, api: DuctileApi, watch: JobWatch, *, tools: DuctileTools, send_call_id: bool, pace: Pace, clock: Clock
    ) -> None:
        self._api = api
        self._watch = watch
        self._tools = tools
        self._send_call_id = send_call_id
        self._pace = pace
        self._clock = clock

    def now_has(self, tools: DuctileTools) -> None:
        """What Ductile has, from now on."""
        self._tools = tools

    async def start(self, call: ToolCall) -> str:
        payload = payload_of(call, with_id=self._names_itself(call))
        if call.plugin in self._tools.pipelines:
            return await self._api.start_pipeline(call.plugin, payload)
        return await self._api.start(call.plugin, call.command, payload)

    async def find(self, call: ToolCall, begun_at: datetime) -> str | Unknown:
        """Looked for as long as there is a job that may yet show to be it."""
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
                    return job_id
                # Once it had time to show, a job that is new is another's.
                suspects = under_way if suspects is None or self._clock.now() < settled_at else suspects & under_way
                ends_at = max(call.deadline_at, settled_at) if suspects else settled_at
            except Unreadable:
                ends_at = patient_until
            except Away as error:
                ends_at = settled_at if error.refused else patient_until
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


def _since(created_at: JsonValue, begun_at: datetime) -> bool:
    try:
        created = datetime.fromisoformat(str(created_at))
    except ValueError:
        return False
    created = created if created.tzinfo else created.replace(tzinfo=UTC)
    return created >= begun_at - CLOCKS_DIFFER_BY
