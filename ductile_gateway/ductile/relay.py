"""Ductile's relay ingress: one signed event, one answer.

An event is `{"event": {"type", "payload", "dedupe_key"}, "origin": {"instance", "event_id"}, "baggage"}`. Ductile
answers a repeated event with the job that it started before, once that has succeeded.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import httpx2

from ductile_gateway.ductile.api import FORBIDDEN, default_tls, exchange, job_id_in, own_refusal
from ductile_gateway.ductile.settings import RelayPeerSettings
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, relay_headers
from groundwork.service.machine import utc_now
from schemas.bounded import json_object
from schemas.values import dataclass

_SECRETS_DIFFER = "the peer's secret in Ductile is not the one that is set here, or something on the way says so"

RelayOutcome = Literal["accepted", "unheard", "skewed", "unsigned", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """`unheard`: accepted, and no pipeline listens. `refused`: by Ductile itself, which will not accept the same event.
    `unsigned`: a person may repair the secret. `unknown`: perhaps not Ductile's answer."""

    outcome: RelayOutcome
    status: int
    job_id: str
    reason: str


def read_answer(status: int, body: bytes) -> RelayAnswer:
    fields = json_object(body) or {}
    job_id, error = job_id_in(fields), str(fields.get("error") or "")[:200]
    outcome: RelayOutcome = "refused" if own_refusal(body) is not None else "unknown"
    if status == httpx2.codes.ACCEPTED and job_id:
        outcome = "accepted"
    elif status == httpx2.codes.ACCEPTED and fields.get("status") == "accepted" and not fields.get("job_id"):
        outcome = "unheard"
    elif status == httpx2.codes.FORBIDDEN and "outside allowed clock skew" in error:
        outcome = "skewed"
    elif status == httpx2.codes.FORBIDDEN and error == FORBIDDEN:
        outcome = "unsigned"
    reason = f"{error!a}: {_SECRETS_DIFFER}" if outcome == "unsigned" else ascii(error)
    return RelayAnswer(outcome, status, job_id, reason)


@dataclass(eq=False)
class RelayIngress:
    _client: httpx2.AsyncClient
    us: RelayPeerSettings

    async def post(self, body: bytes) -> RelayAnswer:
        """Raises httpx2.HTTPError, and UnreadableAnswer for a body that is too large."""
        answer = await self._post(body)
        return await self._post(body) if answer.outcome == "skewed" else answer

    async def _post(self, body: bytes) -> RelayAnswer:
        path, headers = self.us.ingress_path, signed_headers(self.us, body)
        return read_answer(*await exchange(self._client, "POST", path, content=body, headers=headers))


def signed_headers(us: RelayPeerSettings, body: bytes) -> dict[str, str]:
    signed = relay_headers(us.ingress_path, body, us.secret.get_secret_value(), at=utc_now())
    return {"Content-Type": "application/json", PEER: us.peer, KEY_ID: us.key_id} | signed


@asynccontextmanager
async def open_relay_ingress(
    url: str, us: RelayPeerSettings, *, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[RelayIngress]:
    """`transport` replaces the network. Each event has its own connection: on one that Ductile closes meanwhile its
    outcome would be unknown."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=url, timeout=timeout_s, limits=limits, verify=default_tls(), transport=transport, trust_env=False
    ) as client:
        yield RelayIngress(client, us)
