"""Events from outside: deliveries of webhooks and of Ductile's relay become messages on the bus, each once however
often it is sent.

    headers ─▶ body ─▶ signature ─▶ mapping ─▶ bus ─▶ recorded

A delivery is recorded after the bus has it. After a crash in between its sender repeats it: the same content gets the
same name, and the bus drops the second message by its Msg-Id. An unknown name or key is answered like a wrong
signature, in the same time. Webhooks of Ductile and GitHub sign the body alone, so their deliveries are told apart by
it: a name in an unsigned header could be anybody's.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from secrets import token_bytes
from weakref import WeakValueDictionary

from pydantic import JsonValue

from ductile_gateway.ductile import relay_wire
from ductile_gateway.ductile.answers import FORBIDDEN
from ductile_gateway.ports import Artifacts, Bus, CannotKeep, Clock
from ductile_gateway.store.outbox import ReceivedDeliveries
from ductile_gateway.webhooks import signatures
from ductile_gateway.webhooks.github import agrees
from ductile_gateway.webhooks.inbound_settings import EventMapping, IngressSettings, PeerSettings, WebhookSettings
from ductile_gateway.webhooks.mapping import Origin, Outgoing, RequestRefused, find, of_document, of_relayed, token
from ductile_gateway.webhooks.results import FindOffer
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, SIGNATURE, TIMESTAMP
from groundwork.service import strict
from groundwork.service.errors import TryAgain
from groundwork.telemetry.span import context_of
from schemas import envelope
from schemas.envelope import TRACEPARENT
from schemas.values import dataclass

SOURCE = "/agentic-loop/ductile-gateway/ingress"
ANY_TYPE = "*"
_GITHUB_SIGNATURE, _STANDARD_SIGNATURE = "x-hub-signature-256", "webhook-signature"
_IDS = {
    "github": (re.compile(r"[A-Za-z0-9-]{1,64}"), "X-GitHub-Delivery"),
    "standard": (re.compile(r"[!-\-/-~]{1,256}"), "webhook-id"),
}
"""How deliveries are named, and where: of Standard Webhooks without the dot that separates what is signed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """`headers` by lower-case name, without repeated ones; `path` decoded. `read` gives the body once, or raises
    RequestRefused."""

    method: str
    path: str
    headers: Mapping[str, str]
    read: Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What came of a delivery. `about` is the wake id of a start, else the run's id."""

    source: str
    event_type: str
    event_key: str
    about: str
    duplicate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What the headers claim, true if the signature holds. `before`: what is signed before the body."""

    digests: tuple[bytes, ...] = ()
    before: bytes = b""
    delivery_id: str = ""
    event_type: str = ""


class Inbound:
    """All methods raise RequestRefused, and TryAgain where the bus does not take the event in time."""

    def __init__(
        self,
        settings: IngressSettings,
        bus: Bus,
        artifacts: Artifacts,
        deliveries: ReceivedDeliveries,
        *,
        find_offer: FindOffer,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._artifacts = artifacts
        self._deliveries = deliveries
        self._find_offer = find_offer
        self._clock = clock
        self._taking = 0
        self._in_hand: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._signed_in = {_signed_in(hook) for hook in settings.webhooks.values()}
        most = max((len(hook.keys) for hook in settings.webhooks.values()), default=1)
        self._nobodys = tuple(token_bytes(32) for _ in range(most))

    async def relay(self, incoming: Incoming) -> Acceptance:
        """An event that a Ductile relays, checked as Ductile's own ingress does, and answered in its words."""
        now = self._clock.now()
        sent = {name: incoming.headers.get(name.lower(), "").strip() for name in (PEER, KEY_ID, TIMESTAMP, SIGNATURE)}
        for flaw in self._flaws(sent, now):
            raise RequestRefused(403, flaw)
        body, name, peer = await incoming.read(), sent[PEER], self._settings.peers.get(sent[PEER])
        message = signatures.relay_message(incoming.method, incoming.path, sent[TIMESTAMP], body)
        secrets, flaw = self._secrets(peer, sent[KEY_ID], now)
        if not signatures.signed_by_any(secrets, message, signatures.hex_digests(sent[SIGNATURE])) or peer is None:
            raise RequestRefused(403, FORBIDDEN, why=flaw or "the signature is not that of this body and time")
        event = _relayed(body)
        if event.instance not in ("", name):
            raise RequestRefused(403, "origin instance mismatch")
        if event.type not in peer.accept:
            raise RequestRefused(422, "event type not allowed for peer")
        carried, event_id = event.baggage.get(TRACEPARENT), event.event_id or digest(body)
        traceparent = carried if isinstance(carried, str) else incoming.headers.get(TRACEPARENT)
        origin = Origin(source=name, event_id=event_id, at=now, keeps_names=True, traceparent=traceparent)
        outgoing = of_relayed(event, peer.events.get(event.type), origin, self._find_offer)
        return await self._take(event.type, outgoing, origin=origin, identity=f"{event.type}:{event_id}")

    async def webhook(self, name: str, incoming: Incoming) -> Acceptance | None:
        """None for an event that is not mapped."""
        now = self._clock.now()
        hook, claim, body = await self._verified(name, incoming, now)
        document = read_json(body)
        event_type = claim.event_type or _text(document, "type")
        if hook.scheme == "github" and not agrees(event_type, document):
            raise RequestRefused(422, "the header X-GitHub-Event does not say what the body is")
        mapping = _mapping(hook, event_type, action=_text(document, "action"))
        if mapping is None:
            return None
        delivery_id, identity = _ids(hook, claim, body=body, document=document)
        traceparent = incoming.headers.get(TRACEPARENT)
        origin = Origin(source=name, event_id=delivery_id, at=now, strange=True, traceparent=traceparent)
        event = of_document(mapping, document, origin, self._find_offer)
        return await self._take(event_type, event, origin=origin, identity=identity)

    async def _take(self, event_type: str, event: Outgoing, *, origin: Origin, identity: str) -> Acceptance:
        """Durable on return, or known before. `identity`: of the delivery within its source."""
        if self._taking >= self._settings.max_in_hand:
            raise TryAgain(f"{self._taking} deliveries wait for the bus already")
        within_s = self._settings.answer_within_s
        self._taking += 1
        try:
            async with asyncio.timeout(within_s):
                known = await self._once(event, origin, token(identity))
        except TimeoutError as error:
            raise TryAgain(f"the bus did not take the event within {within_s:g} s") from error
        finally:
            self._taking -= 1
        key, duplicate = known or event.key, known is not None
        facts = {"source": origin.source, "event": event.subject, "key": key, "duplicate": duplicate}
        log.info("event from outside", extra=facts)
        return Acceptance(
            source=origin.source, event_type=event_type, event_key=key, about=event.about, duplicate=duplicate
        )

    async def _once(self, event: Outgoing, origin: Origin, identity: str) -> str | None:
        delivery = (origin.source, identity)
        async with self._in_hand.setdefault(delivery, asyncio.Lock()):
            known = await self._deliveries.find(*delivery)
            if known is None:
                await self._keep(event)
                await self._bus.publish(event.subject, event.body, key=event.key, headers=_headers(event, origin))
                await self._deliveries.record(*delivery, event_key=event.key, at=origin.at)
            return known

    async def _keep(self, event: Outgoing) -> None:
        for one in event.artifacts:
            try:
                await self._artifacts.put(event.about, one.name, one.artifact.content, one.artifact.content_type)
            except CannotKeep as error:
                told = "the result is too large for an event, and for a run of this name no artifact can be stored"
                raise RequestRefused(422, told) from error

    def _flaws(self, sent: Mapping[str, str], now: datetime) -> Iterator[str]:
        instant = signatures.relay_instant(sent[TIMESTAMP])
        if not sent[TIMESTAMP]:
            yield "missing relay timestamp"
        if instant is None:
            yield "invalid relay timestamp"
        elif not signatures.within(instant, now, self._settings.allowed_skew_s):
            yield "relay timestamp outside allowed clock skew"
        if not sent[KEY_ID] and self._settings.require_key_id:
            yield "missing relay key id"
        if not sent[SIGNATURE]:
            yield "missing relay signature"

    def _secrets(self, peer: PeerSettings | None, key_id: str, now: datetime) -> tuple[tuple[bytes, ...], str]:
        named = [key for key in peer.keys if not key_id or key.id == key_id] if peer else []
        holding = tuple(key.secret.get_secret_value().encode() for key in named if key.holds(now))
        flaw = "unknown relay peer" if peer is None else "the key is past its `until`" if named else "unknown key id"
        return (holding, "") if holding else (self._nobodys[:1], flaw)

    async def _verified(self, name: str, incoming: Incoming, now: datetime) -> tuple[WebhookSettings, _Claim, bytes]:
        """The webhook, and what was signed. Raises RequestRefused, which tells no names."""
        if self._signed_in.isdisjoint(incoming.headers):
            raise _unauthorized("nothing is signed")
        hook, body = self._settings.webhooks.get(name), await incoming.read()
        claim = self._claim(hook, incoming.headers, now) if hook else _Claim()
        keys = ((*hook.secrets(now), *self._nobodys) if hook else self._nobodys)[: len(self._nobodys)]
        signed = signatures.signed_by_any(keys, claim.before + body, claim.digests)
        if hook is None or not signed:
            raise _unauthorized("no key that holds has signed this" if hook else f"there is no webhook {name[:48]!a}")
        form, header = _IDS.get(hook.scheme, (None, ""))
        if form and not form.fullmatch(claim.delivery_id):
            raise RequestRefused(400, f"the header {header} is missing, or no name of a delivery")
        return hook, claim, body

    def _claim(self, hook: WebhookSettings, headers: Mapping[str, str], now: datetime) -> _Claim:
        signature = headers.get(_signed_in(hook), "")
        if hook.scheme == "ductile":
            return _Claim(digests=signatures.hex_digests(signature.strip()))
        if hook.scheme == "github":
            return _Claim(
                digests=signatures.hex_digests(signature.strip(), prefix_needed=True),
                delivery_id=headers.get("x-github-delivery", ""),
                event_type=headers.get("x-github-event", ""),
            )
        message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        instant = signatures.unix_instant(timestamp)
        if instant is None or not signatures.within(instant, now, self._settings.allowed_skew_s):
            return _Claim()
        return _Claim(
            digests=signatures.standard_digests(signature),
            before=signatures.standard_message(message_id, timestamp, b""),
            delivery_id=message_id,
        )


def read_json(body: bytes) -> JsonValue:
    try:
        return strict.read(body)
    except strict.NotStrictJson as error:
        raise RequestRefused(400, f"invalid JSON body: it {error}") from None


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _relayed(body: bytes) -> relay_wire.ReceivedEvent:
    try:
        return relay_wire.read_received(read_json(body))
    except relay_wire.Malformed as error:
        raise RequestRefused(400, str(error)) from error


def _signed_in(hook: WebhookSettings) -> str:
    headers = {"ductile": hook.signature_header.lower(), "github": _GITHUB_SIGNATURE, "standard": _STANDARD_SIGNATURE}
    return headers[hook.scheme]


def _mapping(hook: WebhookSettings, event_type: str, *, action: str) -> EventMapping | None:
    wanted = (f"{event_type}.{action}", event_type, ANY_TYPE)
    return next((hook.events[name] for name in wanted if name in hook.events), None)


def _ids(hook: WebhookSettings, claim: _Claim, *, body: bytes, document: JsonValue) -> tuple[str, str]:
    own = digest(body)
    if hook.scheme == "standard":
        return claim.delivery_id, claim.delivery_id
    if hook.scheme == "ductile" and hook.delivery_id is not None:
        named = find(document, hook.delivery_id)
        if not isinstance(named, str) or not named:
            raise RequestRefused(422, f"the event has no text at {hook.delivery_id}, where its id should be")
        return named, named
    return claim.delivery_id or own, own


def _text(document: JsonValue, name: str) -> str:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def _unauthorized(why: str) -> RequestRefused:
    return RequestRefused(401, "unauthorized", why=why)


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
