"""Starting a call by an event through the relay ingress of a Ductile: for routes whose plugin acts once per dedupe key.

Rules: an event without an answer is sent again, the same under the same key, until the deadline of its call; one after
the other, with a pause that gives a job time to end, because only then Ductile knows the key. After the deadline
nothing is sent. Once a start was lost, a refusal does not say that nothing has run: what remains is Unknown.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from ductile_gateway.calls.call import ToolCall, Unknown
from ductile_gateway.ductile.api import Lost, NotSent, Refused
from ductile_gateway.ductile.relay_envelope import SECRETS_DIFFER, Reply, permanent, relayed_body, unsigned
from ductile_gateway.ductile.relay_ingress import RelayIngress, open_relay_ingress
from ductile_gateway.ductile.settings import DuctileSettings, RelayRouteSettings
from ductile_gateway.ductile.starts import payload_of
from ductile_gateway.ductile.tool_events import tool_event
from ductile_gateway.ports import Clock
from ductile_gateway.store.receipts import Receipt

_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class RelayStarts:
    """Fills Starts. From `open_relay_starts`."""

    def __init__(
        self,
        ingress: RelayIngress,
        settings: RelayRouteSettings,
        *,
        send_call_id: bool,
        timeout_s: float,
        clock: Clock,
    ) -> None:
        self._ingress = ingress
        self._settings = settings
        self._types = settings.event_types()
        self._send_call_id = send_call_id
        self._timeout_s = timeout_s
        self._clock = clock

    async def start(self, call: ToolCall) -> str:
        event = tool_event(self._types[call.plugin], call.key, payload_of(call, with_id=self._send_call_id))
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._ingress.post(relayed_body(event, self._settings.peer))
        except _UNSENT as error:
            raise NotSent(f"no connection to Ductile ({type(error).__name__})") from error
        except (httpx2.HTTPError, TimeoutError) as error:
            raise Lost(f"Ductile was sent an event, and its answer was lost ({type(error).__name__})") from error
        return _started(reply, event.type)

    async def find(self, call: ToolCall, _: Receipt) -> str | Unknown:
        """Found by sending the event again, whenever the call was begun."""
        if not call.complete:
            return Unknown("its event was not answered, and the same event cannot be made any more")
        pause_s = self._settings.again_first_s
        while (call.deadline_at - self._clock.now()).total_seconds() > pause_s:
            await asyncio.sleep(pause_s)
            try:
                return await self.start(call)
            except Refused as refusal:
                return Unknown(f"its event was sent and not answered, and when it was sent again {refusal}")
            except (NotSent, Lost):
                pause_s = min(2 * pause_s, self._settings.again_most_s)
        return Unknown("its event was sent to Ductile, and not answered before the deadline")


def _started(reply: Reply, event_type: str) -> str:
    if reply.job_id and reply.status == httpx2.codes.ACCEPTED:
        return reply.job_id
    if reply.unheard:
        raise Refused(reply.status, f"no pipeline listens to {event_type}: it needs one with `on: {event_type}`")
    if unsigned(reply):
        raise Refused(reply.status, f"{reply.error!a} to an event {event_type}: {SECRETS_DIFFER}")
    if permanent(reply):
        raise Refused(reply.status, f"{reply.error!a} to an event {event_type}")
    raise Lost(f"Ductile was sent an event, and answered {reply.status} without the id of a job")


@asynccontextmanager
async def open_relay_starts(
    settings: DuctileSettings, *, clock: Clock, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[Mapping[str, RelayStarts]]:
    """How the relayed routes of the settings are called, by route. `transport`: in place of the network."""
    if (relay := settings.relay) is None:
        yield {}
        return
    timeout_s = settings.request_timeout_s
    async with open_relay_ingress(
        settings.url, relay, timeout_s=timeout_s, clock=clock, transport=transport
    ) as ingress:
        starts = RelayStarts(ingress, relay, send_call_id=settings.send_call_id, timeout_s=timeout_s, clock=clock)
        yield dict.fromkeys(relay.routes, starts)
