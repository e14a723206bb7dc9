"""Starting a call in a Ductile, by its API or by an event, and finding the job of a start that was not answered.

A call of the API is sent at most once, unless it is sure that Ductile made no job of it. Ductile has no idempotency, so
the call id travels in the payload: a job whose result shows it is the one. That there is none is sure when Ductile
lists all jobs of the command since just before the call was sent, none of them is of unknown origin, and it stays so,
while Ductile answers, for longer than a request can be on its way: Ductile drops one that it has not read within ten
seconds, and makes a job of it at once. What cannot be found out is Unknown.

Events are for routes whose plugin acts once per dedupe key: one without an answer is sent again under the same key,
until the deadline, with a pause that gives a job time to end, because only then Ductile knows the key. Once a start was
lost, a refusal does not say that nothing has run.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from pydantic import JsonValue

from ductile_gateway.calls.call import CALL_ID, MARK, Asked, NeverStarted, Receipt, ToolCall, Unknown, Way
from ductile_gateway.ductile.api import (
    CALL,
    PIPELINE,
    UNSENT,
    Away,
    Document,
    DuctileApi,
    DuctileRefused,
    Lost,
    NotSent,
    Unreadable,
)
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import FINISHED, Sent
from ductile_gateway.ductile.relay import SECRETS_DIFFER, RelayIngress
from ductile_gateway.ductile.settings import DuctileSettings, RelayRouteSettings
from ductile_gateway.ductile.watch import Pace
from ductile_gateway.webhooks.signatures import relay_event
from groundwork.service.machine import utc_now
from schemas.events import RESERVED_KEYS
from schemas.values import dataclass

CLOCKS_DIFFER_BY = timedelta(seconds=30)
MOST_NAMED = 5
REMEMBERED = 2000

Found = str | NeverStarted | Unknown
"""The id of the job; or that there is none and will be none; or that it is unknown, with the jobs that may be it."""


async def sent_by(path: str, starting: Awaitable[str]) -> Sent:
    began_at, told = utc_now(), dict[str, Any]()
    try:
        told = {"fate": "accepted", "status": httpx2.codes.ACCEPTED, "job_id": await starting}
    except DuctileRefused as refusal:
        told = {"fate": "refused", "status": refusal.status or None, "why": str(refusal)}
    except (NotSent, Lost) as error:
        told = {"fate": "lost" if isinstance(error, Lost) else "not_sent", "why": str(error)}
    return Sent(path=path, began_at=began_at, ended_at=utc_now(), **told)


def payload_of(call: ToolCall, *, with_id: bool) -> dict[str, JsonValue]:
    payload = {name: value for name, value in call.payload.items() if name not in (CALL_ID, MARK)}
    mark: dict[str, JsonValue] = {MARK: True} if call.asked.request.untrusted else {}
    return payload | {CALL_ID: call.key} | mark if with_id else payload


@dataclass(eq=False)
class ApiStarts:
    """`way` and `path`: how and where in Ductile a call is started. `start`: the job's id; raises NotSent,
    DuctileRefused or Lost, and only the last leaves open whether there is a job. `find`: what became of a call whose
    start was not answered. RelayStarts has the same."""

    api: DuctileApi
    tools: DuctileTools
    settings: DuctileSettings
    pace: Pace
    known: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Jobs whose calls are known."""

    def way(self, call: ToolCall) -> Way:
        return "pipeline" if call.plugin in self.tools.pipelines else "plugin"

    async def before(self, call: ToolCall) -> str | None:
        """The command's newest job, empty for none, None if that is not told. Raises Away unless a Ductile is there."""
        await self.api.health()
        if self.way(call) == "pipeline":
            return None
        try:
            jobs = await self.api.jobs(plugin=call.plugin, command=call.command, most=1)
        except (Away, DuctileRefused, Unreadable):
            return None
        return str(jobs[0].get("job_id")) if jobs else ""

    def path(self, call: ToolCall) -> str:
        endpoint, names = PIPELINE if self.way(call) == "pipeline" else CALL, (call.plugin, call.command)
        return endpoint.path.partition("?")[0].format(*names)

    async def start(self, call: ToolCall) -> str:
        command = None if self.way(call) == "pipeline" else call.command
        return await self.api.start(call.plugin, command, payload_of(call, with_id=self._names_itself(call)))

    async def find(self, call: ToolCall, receipt: Receipt) -> Found:
        if self.way(call) == "pipeline":  # its first job is of a plugin that is not told
            return Unknown("its start in Ductile was not answered, and a pipeline's jobs do not show whose they are")
        names_itself, delay_s, now = self._names_itself(call), self.pace.first_s, utc_now()
        settled_at = now + timedelta(seconds=self.pace.settle_s)
        until, in_flight = self.pace.patient_until(call), timedelta(seconds=self.pace.in_flight_s)
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
                now = utc_now()
                none_since = (none_since or now) if is_complete and not jobs else None
                if none_since and now >= none_since + in_flight:
                    return NeverStarted()
                is_over = none_since is None and (all(jobs.values()) or not names_itself)
            if utc_now() >= (settled_at if is_over else until):
                why = "no job there shows its call id" if names_itself else "it carries no call id to find its job by"
                return Unknown(f"its start in Ductile was not answered, and {why}", jobs=tuple(jobs)[:MOST_NAMED])
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, self.pace.most_s)

    def _names_itself(self, call: ToolCall) -> bool:
        return self.settings.send_call_id and (call.plugin, call.command) not in self.tools.closed

    async def _possible(self, call: ToolCall, receipt: Receipt) -> tuple[dict[str, bool], bool]:
        """The jobs that may be the call's, by id, with whether each has ended; and whether there are no
        others."""
        listed = await self.api.jobs(plugin=call.plugin, command=call.command)
        since = list(_since(listed, receipt))
        is_complete = receipt.newest is not None and (not receipt.newest or len(since) < len(listed))
        ids = {str(job.get("job_id")): job.get("status") in FINISHED for job in since}
        return {job_id: ended for job_id, ended in ids.items() if job_id not in self.known}, is_complete

    async def _shown(self, call: ToolCall, receipt: Receipt) -> str | None:
        entries = await self.api.logged_with(call.key, plugin=call.plugin, command=call.command)
        found = {str(entry.get("job_id")) for entry in entries if _later(entry.get("created_at"), receipt.begun_at)}
        return found.pop() if len(found) == 1 else None


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


@dataclass(eq=False)
class RelayStarts:
    ingress: RelayIngress
    us: RelayRouteSettings
    settings: DuctileSettings
    pace: Pace

    def way(self, _: ToolCall) -> Way:
        return "event"

    def path(self, _: ToolCall) -> str:
        return self.us.ingress_path

    async def start(self, call: ToolCall) -> str:
        kind = self.us.event_types()[call.plugin]
        payload, baggage = of_call(call.asked, payload_of(call, with_id=self.settings.send_call_id))
        try:
            async with asyncio.timeout(self.settings.request_timeout_s):
                answer = await self.ingress.post(relay_event(kind, call.key, payload, baggage, peer=self.us.peer))
        except UNSENT as error:
            raise NotSent(f"no connection to Ductile ({type(error).__name__})") from error
        except (httpx2.HTTPError, TimeoutError, Unreadable) as error:
            raise Lost(f"Ductile was sent an event, and its answer was lost ({type(error).__name__})") from error
        why = f"{answer.error!a} to an event {kind}"
        match answer.fate:
            case "accepted":
                return answer.job_id
            case "unheard":
                why = f"no pipeline listens to {kind}: it needs one with `on: {kind}`"
            case "unsigned":
                why += f": {SECRETS_DIFFER}"
            case "strange":
                raise Lost(f"Ductile was sent an event, and answered {answer.status} without the id of a job")
        raise DuctileRefused(answer.status, why)

    async def find(self, call: ToolCall, _: Receipt) -> Found:
        if not call.complete:
            return Unknown("its event was not answered, and the same event cannot be made any more")
        pause_s = self.pace.again_first_s
        while (call.deadline_at - utc_now()).total_seconds() > pause_s:
            await asyncio.sleep(pause_s)
            try:
                return await self.start(call)
            except DuctileRefused as refusal:
                return Unknown(f"its event was sent and not answered, and when it was sent again {refusal}")
            except (NotSent, Lost):
                pause_s = min(2 * pause_s, self.pace.again_most_s)
        return Unknown("its event was sent to Ductile, and not answered before the deadline")


def of_call(asked: Asked, payload: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """Payload and baggage. Correlation stands in both; neither a model nor a tool can say otherwise (RFC-103, reserved
    keys). With the capability a pipeline can answer by an event of its own."""
    request = asked.request
    belongs: dict[str, JsonValue] = {"run_id": request.run_id, "step": request.step, "tool": request.tool}
    belongs |= {"capability": request.capability} if request.capability else {}
    said = {name: value for name, value in payload.items() if name not in RESERVED_KEYS}
    named: dict[str, JsonValue] = {CALL_ID: payload[CALL_ID]} if CALL_ID in payload else {}
    return said | belongs | {"attempt": request.attempt}, belongs | named
