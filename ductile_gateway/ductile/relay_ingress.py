"""Ductile's relay ingress over HTTP: one signed event, one answer. A timestamp that is too far off is renewed once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from ductile_gateway.ductile.relay_envelope import Peer, Reply, read_reply, signed_headers, skewed
from ductile_gateway.ductile.settings import RelayPeerSettings
from ductile_gateway.ports import Clock

LONGEST_ANSWER = 64 * 1024


class RelayIngress:
    """From `open_relay_ingress`."""

    def __init__(self, client: httpx2.AsyncClient, peer: Peer, *, clock: Clock) -> None:
        self._client = client
        self._peer = peer
        self._clock = clock

    async def post(self, body: bytes) -> Reply:
        """What Ductile answered to the event in the body. Raises httpx2.HTTPError."""
        reply = await self._post(body)
        return await self._post(body) if skewed(reply) else reply

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


@asynccontextmanager
async def open_relay_ingress(
    url: str,
    settings: RelayPeerSettings,
    *,
    timeout_s: float,
    clock: Clock,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[RelayIngress]:
    """The relay ingress of the Ductile at this address. `transport`: in place of the network.

    Every event has a connection of its own: one that was closed in the meantime would make its fate doubtful.
    """
    peer = Peer(
        settings.peer,
        settings.key_id,
        settings.secret.get_secret_value().encode(),
        f"{settings.path.rstrip('/')}/{settings.peer}",
    )
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=url, timeout=timeout_s, limits=limits, transport=transport, trust_env=False
    ) as client:
        yield RelayIngress(client, peer, clock=clock)
