"""Ductile's relay ingress: one signed event, one answer; and calls of tools made by such events.

An event is `{"event": {"type", "payload", "dedupe_key"}, "origin": {"instance", "event_id"}, "baggage"}`. Ductile
answers a repeated one with the job that it began before. Calls by events are for routes whose plugin acts once per
dedupe key: an event without an answer is sent again under the same key, until the deadline, with a pause that gives a
job time to end, because only then Ductile knows the key. Once a start was lost, a refusal does not say that nothing has
run: what remains is Unknown.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal

import httpx2
from pydantic import JsonValue

from ductile_gateway.calls.call import CALL_ID, Asked, Receipt, ToolCall, Unknown, Way
from ductile_gateway.ductile.answers import (
    FORBIDDEN,
    DuctileRefused,
    Lost,
    NotSent,
    Unreadable,
    fields_of,
    job_id_in,
    own_refusal,
)
from ductile_gateway.ductile.api import UNSENT, exchange
from ductile_gateway.ductile.settings import DuctileSettings, RelayPeerSettings, RelayRouteSettings
from ductile_gateway.ductile.starts import payload_of
from ductile_gateway.ductile.watch import Pace
from ductile_gateway.ports import Clock
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, relay_headers
from schemas.events import RESERVED_KEYS
from schemas.values import dataclass

SKEWED = "outside allowed clock skew"
SECRETS_DIFFER = "the peer's secret in Ductile is not the one that is set here, or something on the way says so"
_ACCEPTED, _FORBIDDEN = 202, 403

Fields = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """`unheard`: accepted, and no pipeline listens. `refused`: in Ductile's own words, so that it will not accept the
    same event. `unsigned`: neither of these, as a person may mend the secret. `strange`: perhaps not Ductile's."""

    fate: Literal["accepted", "unheard", "skewed", "unsigned", "refused", "strange"]
    status: int
    job_id: str
    error: str


def body_of(kind: str, key: str, payload: Fields, baggage: Fields, *, peer: str) -> bytes:
    """An event under its dedupe key. `baggage`: what Ductile's context is to carry, as far as it lets the peer."""
    envelope = {
        "event": {"type": kind, "payload": dict(payload), "dedupe_key": key},
        "origin": {"instance": peer, "event_id": key},
        "baggage": dict(baggage),
    }
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()


def of_call(asked: Asked, payload: Fields) -> tuple[Fields, Fields]:
    """Payload and baggage. Correlation stands in both; neither a model nor a tool can say otherwise (RFC-103, reserved
    keys). With the capability a pipeline can answer by an event of its own."""
    request = asked.request
    belongs: dict[str, JsonValue] = {"run_id": request.run_id, "step": request.step, "tool": request.tool}
    belongs |= {"capability": request.capability} if request.capability else {}
    said = {name: value for name, value in payload.items() if name not in RESERVED_KEYS}
    named: dict[str, JsonValue] = {CALL_ID: payload[CALL_ID]} if CALL_ID in payload else {}
    return said | belongs | {"attempt": request.attempt}, belongs | named


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


class RelayIngress:
    def __init__(self, client: httpx2.AsyncClient, us: RelayPeerSettings, *, clock: Clock) -> None:
        self._client = client
        self._us = us
        self._clock = clock

    async def post(self, body: bytes) -> RelayAnswer:
        """What Ductile answered to the event in the body. Raises httpx2.HTTPError, and Unreadable for a body that is
        too large."""
        answer = await self._post(body)
        return await self._post(body) if answer.fate == "skewed" else answer

    async def _post(self, body: bytes) -> RelayAnswer:
        headers = signed_headers(self._us, body, clock=self._clock)
        return read_answer(*await exchange(self._client, "POST", self._us.ingress_path, content=body, headers=headers))


def signed_headers(us: RelayPeerSettings, body: bytes, *, clock: Clock) -> dict[str, str]:
    signed = relay_headers(us.ingress_path, body, us.secret.get_secret_value(), at=clock.now())
    return {"Content-Type": "application/json", PEER: us.peer, KEY_ID: us.key_id} | signed


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
        self, ingress: RelayIngress, us: RelayRouteSettings, settings: DuctileSettings, *, pace: Pace, clock: Clock
    ) -> None:
        self._ingress = ingress
        self._us = us
        self._settings = settings
        self._pace = pace
        self._clock = clock

    def way(self, _: ToolCall) -> Way:
        return "event"

    def path(self, _: ToolCall) -> str:
        return self._us.ingress_path

    async def start(self, call: ToolCall) -> str:
        kind = self._us.event_types()[call.plugin]
        payload, baggage = of_call(call.asked, payload_of(call, with_id=self._settings.send_call_id))
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                answer = await self._ingress.post(body_of(kind, call.key, payload, baggage, peer=self._us.peer))
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

    async def find(self, call: ToolCall, _: Receipt) -> str | Unknown:
        if not call.complete:
            return Unknown("its event was not answered, and the same event cannot be made any more")
        pause_s = self._pace.again_first_s
        while (call.deadline_at - self._clock.now()).total_seconds() > pause_s:
            await asyncio.sleep(pause_s)
            try:
                return await self.start(call)
            except DuctileRefused as refusal:
                return Unknown(f"its event was sent and not answered, and when it was sent again {refusal}")
            except (NotSent, Lost):
                pause_s = min(2 * pause_s, self._pace.again_most_s)
        return Unknown("its event was sent to Ductile, and not answered before the deadline")


@asynccontextmanager
async def open_relay_starts(
    settings: DuctileSettings, *, pace: Pace, clock: Clock, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncIterator[Mapping[str, RelayStarts]]:
    """How the relayed routes of the settings are called, by route. `transport`: in place of the network."""
    if (us := settings.relay) is None:
        yield {}
        return
    timeout_s = settings.request_timeout_s
    async with open_relay_ingress(settings.url, us, timeout_s=timeout_s, clock=clock, transport=transport) as ingress:
        yield dict.fromkeys(us.routes, RelayStarts(ingress, us, settings, pace=pace, clock=clock))
