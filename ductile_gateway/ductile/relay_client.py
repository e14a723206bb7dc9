"""Ductile's relay ingress over HTTP: one signed event, one answer; and calls of tools made by such events.

Calls by events are for routes whose plugin acts once per dedupe key: an event without an answer is sent again under the
same key, until the deadline, with a pause that gives a job time to end, because only then Ductile knows the key. Once a
start was lost, a refusal does not say that nothing has run: what remains is Unknown.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from ductile_gateway.calls.call import Receipt, ToolCall, Unknown, Way
from ductile_gateway.ductile.answers import DuctileRefused, Lost, NotSent, Unreadable
from ductile_gateway.ductile.api import UNSENT, exchange
from ductile_gateway.ductile.relay_wire import (
    SECRETS_DIFFER,
    RelayAnswer,
    body_of,
    of_call,
    read_answer,
    signed_headers,
)
from ductile_gateway.ductile.settings import DuctileSettings, RelayPeerSettings, RelayRouteSettings
from ductile_gateway.ductile.starts import payload_of
from ductile_gateway.ports import Clock


class RelayIngress:
    def __init__(self, client: httpx2.AsyncClient, us: RelayPeerSettings, *, clock: Clock) -> None:
        self._client = client
        self._us = us
        self._clock = clock

    async def post(self, body: bytes) -> RelayAnswer:
        """What Ductile answered to the event in the body. Raises httpx2.HTTPError, and Unreadable for a body that is
        too large."""
        answer = await self._post(body)
        return await self._post(body) if answer.is_skewed else answer

    async def _post(self, body: bytes) -> RelayAnswer:
        headers = signed_headers(self._us, body, at=self._clock.now())
        return read_answer(*await exchange(self._client, "POST", self._us.ingress_path, content=body, headers=headers))


@asynccontextmanager
async def open_relay_ingress(
    url: str,
    us: RelayPeerSettings,
    *,
    timeout_s: float,
    clock: Clock,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[RelayIngress]:
    """`transport`: in place of the network. Each event has a connection of its own: a closed one would make its fate
    doubtful."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=url, timeout=timeout_s, limits=limits, transport=transport, trust_env=False
    ) as client:
        yield RelayIngress(client, us, clock=clock)


class RelayStarts:
    def __init__(
        self, ingress: RelayIngress, us: RelayRouteSettings, *, send_call_id: bool, timeout_s: float, clock: Clock
    ) -> None:
        self._ingress = ingress
        self._us = us
        self._send_call_id = send_call_id
        self._timeout_s = timeout_s
        self._clock = clock

    def way(self, _: ToolCall) -> Way:
        return "event"

    def path(self, _: ToolCall) -> str:
        return self._us.ingress_path

    async def start(self, call: ToolCall) -> str:
        kind = self._us.event_types()[call.plugin]
        event = of_call(kind, call.asked, payload_of(call, with_id=self._send_call_id))
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._ingress.post(body_of(event, self._us.peer))
        except UNSENT as error:
            raise NotSent(f"no connection to Ductile ({type(error).__name__})") from error
        except (httpx2.HTTPError, TimeoutError, Unreadable) as error:
            raise Lost(f"Ductile was sent an event, and its answer was lost ({type(error).__name__})") from error
        if answer.job_id and answer.is_accepted:
            return answer.job_id
        why = f"{answer.error!a} to an event {kind}"
        if answer.unheard:
            why = f"no pipeline listens to {kind}: it needs one with `on: {kind}`"
        elif answer.is_unsigned:
            why += f": {SECRETS_DIFFER}"
        elif not answer.own:
            raise Lost(f"Ductile was sent an event, and answered {answer.status} without the id of a job")
        raise DuctileRefused(answer.status, why)

    async def find(self, call: ToolCall, _: Receipt) -> str | Unknown:
        if not call.complete:
            return Unknown("its event was not answered, and the same event cannot be made any more")
        pause_s = self._us.again_first_s
        while (call.deadline_at - self._clock.now()).total_seconds() > pause_s:
            await asyncio.sleep(pause_s)
            try:
                return await self.start(call)
            except DuctileRefused as refusal:
                return Unknown(f"its event was sent and not answered, and when it was sent again {refusal}")
            except (NotSent, Lost):
                pause_s = min(2 * pause_s, self._us.again_most_s)
        return Unknown("its event was sent to Ductile, and not answered before the deadline")


@asynccontextmanager
async def open_relay_starts(
    settings: DuctileSettings, *, clock: Clock, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[Mapping[str, RelayStarts]]:
    """How the relayed routes of the settings are called, by route. `transport`: in place of the network."""
    if (us := settings.relay) is None:
        yield {}
        return
    timeout_s = settings.request_timeout_s
    async with open_relay_ingress(settings.url, us, timeout_s=timeout_s, clock=clock, transport=transport) as ingress:
        starts = RelayStarts(ingress, us, send_call_id=settings.send_call_id, timeout_s=timeout_s, clock=clock)
        yield dict.fromkeys(us.routes, starts)
