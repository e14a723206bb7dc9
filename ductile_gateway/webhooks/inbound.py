"""Events from outside: deliveries of webhooks and of Ductile's relay become messages on the bus.

    signature ─▶ mapping ─▶ bus

However often a delivery is sent, its message has the same name: the bus drops a copy that comes soon, and the agent
knows the start, signal or result that comes later. An unknown name or key is answered like a wrong signature. Webhooks
of Ductile and GitHub sign the body alone, so their deliveries are told apart by it: a name in an unsigned header could
be anybody's.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from secrets import token_bytes
from typing import NamedTuple

from pydantic import JsonValue

from ductile_gateway.ductile.answers import FORBIDDEN
from ductile_gateway.ductile.relay import SKEWED
from ductile_gateway.ports import Artifacts, Bus, CannotKeep, Clock
from ductile_gateway.webhooks import signatures
from ductile_gateway.webhooks.github import agrees
from ductile_gateway.webhooks.inbound_settings import IngressSettings, WebhookSettings
from ductile_gateway.webhooks.mapping import (
    Origin,
    Outgoing,
    RequestRefused,
    find,
    of_document,
    of_relayed,
    read_relayed,
)
from ductile_gateway.webhooks.results import FindOffer
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, SIGNATURE, TIMESTAMP
from groundwork.service import strict
from groundwork.service.errors import TryAgain
from groundwork.telemetry.span import context_of
from schemas import envelope
from schemas.envelope import TRACEPARENT

SOURCE = "/agentic-loop/ductile-gateway/ingress"
ANY_TYPE = "*"
SKEW_S = 300.0
"""How far a sender's clock may be off."""
WITHIN_S = 8.0
"""How long a delivery may wait for the bus: less than its sender waits for the answer."""
_STANDARD_ID = re.compile(r"[!-\-/-~]{1,256}")
"""Without the dot that separates what is signed."""

log = logging.getLogger(__name__)


class Taken(NamedTuple):
    """What came of a delivery. `about` is the wake id of a start, else the run's id."""

    event_type: str
    event_key: str
    about: str


class Inbound:
    """All methods raise RequestRefused, and TryAgain where the bus does not take the event in time. `headers`: by
    lower-case name, without repeated ones."""

    def __init__(
        self,
        settings: IngressSettings,
        bus: Bus,
        artifacts: Artifacts,
        *,
        find_offer: FindOffer,
        clock: Clock,
        within_s: float = WITHIN_S,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._artifacts = artifacts
        self._find_offer = find_offer
        self._clock = clock
        self._within_s = within_s
        self._unknown = (token_bytes(32),)
        """The key of a sender that is not known: its signature is looked at like any other."""

    async def relay(self, path: str, headers: Mapping[str, str], body: bytes) -> Taken:
        """An event that a Ductile relays by POST."""
        now = self._clock.now()
        name, key_id, timestamp, signature = (
            headers.get(header.lower(), "").strip() for header in (PEER, KEY_ID, TIMESTAMP, SIGNATURE)
        )
        instant = signatures.relay_instant(timestamp)
        if instant is None or not signatures.within(instant, now, SKEW_S):
            raise RequestRefused(403, f"relay timestamp {SKEWED}" if instant else "invalid relay timestamp")
        peer = self._settings.peers.get(name)
        keys = [key for key in peer.keys if key.holds(now) and key_id in ("", key.id)] if peer else []
        secrets = tuple(key.secret.get_secret_value().encode() for key in keys) or self._unknown
        message = signatures.relay_message("POST", path, timestamp, body)
        if not signatures.signed_by_any(secrets, message, signatures.hex_digests(signature)) or peer is None:
            raise RequestRefused(403, FORBIDDEN, why=_why(name, known=peer is not None, holds=bool(keys)))
        relayed = read_relayed(read_json(body))
        kind, event_id = relayed.event.type, relayed.id or digest(body)
        if relayed.origin and relayed.origin.instance not in (None, "", name):
            raise RequestRefused(403, "origin instance mismatch")
        if kind not in peer.accept:
            raise RequestRefused(422, "event type not allowed for peer")
        carried = (relayed.baggage or {}).get(TRACEPARENT)
        traceparent = carried if isinstance(carried, str) else headers.get(TRACEPARENT)
        origin = Origin(source=name, event_id=event_id, at=now, keeps_names=True, traceparent=traceparent)
        outgoing = of_relayed(relayed, peer.events.get(kind), origin, self._find_offer)
        return await self._take(kind, outgoing, origin)

    async def webhook(self, name: str, headers: Mapping[str, str], body: bytes) -> Taken | None:
        """None for an event that is not mapped."""
        now = self._clock.now()
        hook = self._settings.webhooks.get(name)
        keys = (hook.secrets(now) if hook else ()) or self._unknown
        digests, message, event_id = _signed(hook, headers, body, now) if hook else ((bytes(32),), body, "")
        if not signatures.signed_by_any(keys, message, digests) or hook is None:
            raise RequestRefused(
                401, "unauthorized", why=_why(name, known=hook is not None, holds=keys != self._unknown)
            )
        document = read_json(body)
        event_type = headers.get("x-github-event", "") if hook.scheme == "github" else _text(document, "type")
        if hook.scheme == "github" and not agrees(event_type, document):
            raise RequestRefused(422, "the header X-GitHub-Event does not say what the body is")
        wanted = (f"{event_type}.{_text(document, 'action')}", event_type, ANY_TYPE)
        mapping = next((hook.events[one] for one in wanted if one in hook.events), None)
        if mapping is None:
            return None
        if hook.delivery_id is not None and hook.scheme == "ductile":
            event_id = _id_at(hook.delivery_id, document)
        origin = Origin(source=name, event_id=event_id, at=now, strange=True, traceparent=headers.get(TRACEPARENT))
        event = of_document(mapping, document, origin, self._find_offer)
        return await self._take(event_type, event, origin)

    async def _take(self, event_type: str, event: Outgoing, origin: Origin) -> Taken:
        """Durable on return."""
        try:
            async with asyncio.timeout(self._within_s):
                await self._keep(event)
                await self._bus.publish(event.subject, event.body, key=event.key, headers=_headers(event, origin))
        except TimeoutError as error:
            raise TryAgain(f"the bus did not take the event within {self._within_s:g} s") from error
        log.info("event from outside", extra={"source": origin.source, "event": event.subject, "key": event.key})
        return Taken(event_type, event.key, event.about)

    async def _keep(self, event: Outgoing) -> None:
        for one in event.artifacts:
            try:
                await self._artifacts.put(event.about, one.name, one.artifact.content, one.artifact.content_type)
            except CannotKeep as error:
                told = "the result is too large for an event, and for a run of this name no artifact can be stored"
                raise RequestRefused(422, told) from error


def read_json(body: bytes) -> JsonValue:
    try:
        return strict.read(body)
    except strict.NotStrictJson as error:
        raise RequestRefused(400, f"invalid JSON body: it {error}") from None


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _signed(
    hook: WebhookSettings, headers: Mapping[str, str], body: bytes, now: datetime
) -> tuple[tuple[bytes, ...], bytes, str]:
    """The digests that a delivery brings, what they have to sign, and the delivery's id; no digest where the headers
    are not those of the scheme."""
    match hook.scheme:
        case "ductile":
            return signatures.hex_digests(headers.get(hook.signature_header.lower(), "").strip()), body, digest(body)
        case "github":
            signature = headers.get("x-hub-signature-256", "").strip()
            return signatures.hex_digests(signature, prefix_needed=True), body, digest(body)
    delivery_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    instant = signatures.unix_instant(timestamp)
    usable = instant is not None and signatures.within(instant, now, SKEW_S) and _STANDARD_ID.fullmatch(delivery_id)
    digests = signatures.standard_digests(headers.get("webhook-signature", "")) if usable else ()
    return digests, signatures.standard_message(delivery_id, timestamp, body), delivery_id


def _why(name: str, *, known: bool, holds: bool) -> str:
    if not known:
        return f"nobody signs here as {name[:48]!a}"
    return f"no key of {name} has signed this" if holds else f"{name} has no key that holds by this name now"


def _id_at(place: str, document: JsonValue) -> str:
    named = find(document, place)
    if not isinstance(named, str) or not named:
        raise RequestRefused(422, f"the event has no text at {place}, where its id should be")
    return named


def _text(document: JsonValue, name: str) -> str:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def _headers(event: Outgoing, origin: Origin) -> dict[str, str]:
    named = envelope.of_cloud_event(
        event.subject,
        dedupe_key=event.key,
        source=f"{SOURCE}/{origin.source}",
        at=origin.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    )
    about = {envelope.RUN_ID: event.run_id} if event.run_id else {}
    traced = {TRACEPARENT: origin.traceparent} if context_of(origin.traceparent) and origin.traceparent else {}
    return named | about | traced
