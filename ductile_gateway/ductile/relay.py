"""Ductile's relay ingress: one signed event, one answer.

An event is `{"event": {"type", "payload", "dedupe_key"}, "origin": {"instance", "event_id"}, "baggage"}`. Ductile
answers a repeated one with the job that it began before.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import httpx2

from ductile_gateway.ductile.api import FORBIDDEN, exchange, fields_of, job_id_in, own_refusal
from ductile_gateway.ductile.settings import RelayPeerSettings
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, relay_headers
from groundwork.service.machine import utc_now
from schemas.values import dataclass

SKEWED = "outside allowed clock skew"
SECRETS_DIFFER = "the peer's secret in Ductile is not the one that is set here, or something on the way says so"
_ACCEPTED, _FORBIDDEN = 202, 403


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """`unheard`: accepted, and no pipeline listens. `refused`: in Ductile's own words, so that it will not accept the
    same event. `unsigned`: neither of these, as a person may mend the secret. `strange`: perhaps not Ductile's."""

    fate: Literal["accepted", "unheard", "skewed", "unsigned", "refused", "strange"]
    status: int
    job_id: str
    error: str


def read_answer(status: int, body: bytes) -> RelayAnswer:
    fields = fields_of(body)
    job_id, error = job_id_in(fields), str(fields.get("error") or "")[:200]
    if status == _ACCEPTED and job_id:
        return RelayAnswer("accepted", status, job_id, error)
    if status == _ACCEPTED and fields.get("status") == "accepted" and not fields.get("job_id"):
        return RelayAnswer("unheard", status, job_id, error)
    if status == _FORBIDDEN and SKEWED in error:
        return RelayAnswer("skewed", status, job_id, error)
    if status == _FORBIDDEN and error == FORBIDDEN:
        return RelayAnswer("unsigned", status, job_id, error)
    return RelayAnswer("refused" if own_refusal(body) is not None else "strange", status, job_id, error)


@dataclass(eq=False)
class RelayIngress:
    _client: httpx2.AsyncClient
    _us: RelayPeerSettings

    async def post(self, body: bytes) -> RelayAnswer:
        """What Ductile answered to the event in the body. Raises httpx2.HTTPError, and Unreadable for a body that is
        too large."""
        answer = await self._post(body)
        return await self._post(body) if answer.fate == "skewed" else answer

    async def _post(self, body: bytes) -> RelayAnswer:
        headers = signed_headers(self._us, body)
        return read_answer(*await exchange(self._client, "POST", self._us.ingress_path, content=body, headers=headers))


def signed_headers(us: RelayPeerSettings, body: bytes) -> dict[str, str]:
    signed = relay_headers(us.ingress_path, body, us.secret.get_secret_value(), at=utc_now())
    return {"Content-Type": "application/json", PEER: us.peer, KEY_ID: us.key_id} | signed


@asynccontextmanager
async def open_relay_ingress(
    url: str, us: RelayPeerSettings, *, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[RelayIngress]:
    """`transport`: in place of the network. Each event has a connection of its own: a closed one would make its fate
    doubtful."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=url, timeout=timeout_s, limits=limits, transport=transport, trust_env=False
    ) as client:
        yield RelayIngress(client, us)
