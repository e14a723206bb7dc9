"""Deliveries to Ductile's relay ingress. Fills the port Sender.

Ductile's answer decides: accepted, never (it refuses in its own words), or not now, which is anything else. A signature
that does not fit is for a person to mend: the event waits for that as it does for a Ductile that is away.
"""

import contextlib
from collections.abc import AsyncIterator

import httpx2

from ductile_gateway.ductile.relay_envelope import SECRETS_DIFFER, accepted, permanent, unsigned
from ductile_gateway.ductile.relay_ingress import RelayIngress, open_relay_ingress
from ductile_gateway.outbound.deliveries import Arrived, Delivery, Never, NotYet, Verdict
from ductile_gateway.outbound.settings import RelaySettings
from ductile_gateway.ports import Clock


class RelaySender:
    """From `open_relay_sender`."""

    def __init__(self, ingress: RelayIngress) -> None:
        self._ingress = ingress

    async def send(self, delivery: Delivery) -> Verdict:
        try:
            reply = await self._ingress.post(delivery.body)
        except httpx2.HTTPError as error:
            return NotYet(f"Ductile's relay ingress: {type(error).__name__}")
        if accepted(reply):
            return Arrived(heard=bool(reply.job_id))
        why = f"Ductile's relay ingress answered {reply.status} {reply.error!a}"
        if unsigned(reply):
            return NotYet(f"{why}: {SECRETS_DIFFER}")
        return Never(why) if permanent(reply) else NotYet(why)


@contextlib.asynccontextmanager
async def open_relay_sender(settings: RelaySettings, *, clock: Clock) -> AsyncIterator[RelaySender]:
    """A sender to the Ductile of the settings. Nothing is connected before the first event."""
    async with open_relay_ingress(settings.url, settings, timeout_s=settings.timeout_s, clock=clock) as ingress:
        yield RelaySender(ingress)
