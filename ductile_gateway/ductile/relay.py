"""Ductile's relay ingress: one signed event, one answer.

An event is `{"event": {"type", "payload", "dedupe_key"}, "origin": {"instance", "event_id"}, "baggage"}`. Ductile
answers a repeated event with the job that it started before, once that has succeeded.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from ductile_gateway.ductile.api import (
    FORBIDDEN,
    AnswerLost,
    DuctileRefused,
    default_tls,
    exchange,
    job_id_in,
    own_refusal,
)
from ductile_gateway.ductile.settings import RelayPeerSettings
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, relay_headers
from groundwork.service.machine import utc_now
from schemas.bounded import json_object
from schemas.values import dataclass

_SECRETS_DIFFER = "the peer's secret in Ductile is not the one that is set here, or something on the way says so"


@dataclass(eq=False)
class RelayIngress:
    _client: httpx2.AsyncClient
    us: RelayPeerSettings

    async def post(self, body: bytes) -> str:
        """Id of the first job; empty if no pipeline listens. Raises DuctileRefused: with 403 a person may mend a name
        or a secret; AnswerLost for an answer that may not be Ductile's; and httpx2.HTTPError and UnreadableAnswer."""
        try:
            return await self._post(body)
        except DuctileRefused as refusal:
            if "outside allowed clock skew" not in str(refusal):
                raise
            return await self._post(body)

    async def _post(self, body: bytes) -> str:
        path, headers = self.us.ingress_path, signed_headers(self.us, body)
        status, answer = await exchange(self._client, "POST", path, content=body, headers=headers)
        fields = json_object(answer) or {}
        job_id, error = job_id_in(fields), str(fields.get("error") or "")[:200]
        is_accepted = fields.get("status") == "accepted" and not fields.get("job_id")
        if status == httpx2.codes.ACCEPTED and (job_id or is_accepted):
            return job_id
        if status == httpx2.codes.FORBIDDEN and error == FORBIDDEN:
            raise DuctileRefused(status, f"{error!a}: {_SECRETS_DIFFER}")
        if own_refusal(answer) is not None:
            raise DuctileRefused(status, ascii(error))
        raise AnswerLost(f"Ductile was sent an event, and answered {status} without the id of a job")


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
