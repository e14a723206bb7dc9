"""Ductile's relay ingress, over HTTP. Fills the port Sender.

Ductile's answer decides: accepted, not now (5xx, no connection), or never (any other refusal). A timestamp that it
finds too far off is renewed once.
"""

import contextlib
from collections.abc import AsyncIterator

import httpx2

from ductile_gateway.core.deliveries import Arrived, Delivery, Never, NotYet, Verdict
from ductile_gateway.core.relay_envelope import Peer, Reply, accepted, permanent, read_reply, signed_headers, skewed
from ductile_gateway.outbound_settings import RelaySettings
from ductile_gateway.ports import Clock

LONGEST_ANSWER = 64 * 1024


class RelaySender:
    """From `open_relay_sender`."""

    def __init__(self, client: httpx2.AsyncClient, peer: Peer, *, clock: Clock) -> None:
        self._client = client
        self._peer = peer
        self._clock = clock

    async def send(self, delivery: Delivery) -> Verdict:
        try:
            reply = await self._post(delivery.body)
            if skewed(reply):
                reply = await self._post(delivery.body)
        except httpx2.HTTPError as error:
            return NotYet(f"Ductile's relay ingress: {type(error).__name__}")
        if accepted(reply):
            return Arrived(heard=bool(reply.job_id))
        why = f"Ductile's relay ingress answered {reply.status} {reply.error!a}"
        return Never(why) if permanent(reply) else NotYet(why)

    async def _post(self, body: bytes) -> Reply:
        headers = signed_headers(self._peer, body, at=self._clock.now())
        async with self._client.stream("POST", self._peer.path, content=body, headers=headers) as response:
            return read_reply(response.status_code, await _beginning(response))


async def _beginning(response: httpx2.Response) -> bytes:
    """The body, cut where it is longer than any answer of Ductile's."""
    content = b""
    async for part in response.aiter_bytes():
        content += part
        if len(content) > LONGEST_ANSWER:
            break
    return content[:LONGEST_ANSWER]


@contextlib.asynccontextmanager
async def open_relay_sender(settings: RelaySettings, *, clock: Clock) -> AsyncIterator[RelaySender]:
    """A sender to the Ductile of the settings. Nothing is connected before the first event."""
    peer = Peer(
        settings.peer,
        settings.key_id,
        settings.secret.get_secret_value().encode(),
        f"{settings.path.rstrip('/')}/{settings.peer}",
    )
    async with httpx2.AsyncClient(base_url=settings.url, timeout=settings.timeout_s, trust_env=False) as client:
        yield RelaySender(client, peer, clock=clock)
