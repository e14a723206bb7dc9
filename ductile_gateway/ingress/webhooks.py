"""Webhooks: each at its own path, with its own secrets and its sender's way to sign.

A wrong signature and an unknown name are answered alike, in the same time. Ductile and GitHub sign the body alone, so
deliveries are told apart by their body: a name in an unsigned header could be anybody's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from secrets import token_bytes

from pydantic import JsonValue

from ductile_gateway import signatures
from ductile_gateway.ingress.github import agrees
from ductile_gateway.ingress.intake import Acceptance, Incoming, Intake, digest, read_json
from ductile_gateway.ingress.mapping import Origin, RequestRefused, find, of_document
from ductile_gateway.ingress.results import FindOffer
from ductile_gateway.ingress.settings import EventMapping, IngressSettings, WebhookSettings
from ductile_gateway.ports import Clock
from schemas.envelope import TRACEPARENT

ANY_TYPE = "*"

_IDS = {
    "github": (re.compile(r"[A-Za-z0-9-]{1,64}"), "X-GitHub-Delivery"),
    "standard": (re.compile(r"[!-\-/-~]{1,256}"), "webhook-id"),
}
"""How deliveries are named, and where: of Standard Webhooks without the dot that separates what is signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What the headers claim, true if the signature holds. `before`: id and timestamp, signed with the body."""

    digests: tuple[bytes, ...] = ()
    before: tuple[str, str] | None = None
    delivery_id: str = ""
    event_type: str = ""

    def message(self, body: bytes) -> bytes:
        return signatures.standard_message(*self.before, body) if self.before else body

    def check_id(self, hook: WebhookSettings) -> None:
        """Raises RequestRefused for a delivery that has no name, where its sender gives it one."""
        form, header = _IDS.get(hook.scheme, (None, ""))
        if form and not form.fullmatch(self.delivery_id):
            raise RequestRefused(400, f"the header {header} is missing, or no name of a delivery")


class Webhooks:
    def __init__(self, settings: IngressSettings, intake: Intake, *, find_offer: FindOffer, clock: Clock) -> None:
        self._find_offer = find_offer
        self._skew_s = settings.allowed_skew_s
        self._intake = intake
        self._clock = clock
        self._hooks = settings.webhooks
        self._signed_in = {_signed_in(hook) for hook in self._hooks.values()}
        most = max((len(hook.keys) for hook in self._hooks.values()), default=1)
        self._nobodys = tuple(token_bytes(32) for _ in range(most))

    async def take(self, name: str, incoming: Incoming) -> Acceptance | None:
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
        return await self._intake.take(event_type, event, origin=origin, identity=identity)

    async def _verified(self, name: str, incoming: Incoming, now: datetime) -> tuple[WebhookSettings, _Claim, bytes]:
        """The webhook, and what was signed. Raises RequestRefused, by which nobody learns which names there are."""
        if self._signed_in.isdisjoint(incoming.headers):
            raise _unauthorized("nothing is signed")
        hook, body = self._hooks.get(name), await incoming.read()
        claim = self._claim(hook, incoming.headers, now) if hook else _Claim()
        signed = signatures.signed_by_any(self._keys(hook, now), claim.message(body), claim.digests)
        if hook is None or not signed:
            raise _unauthorized("no key that holds has signed this" if hook else f"there is no webhook {name[:48]!a}")
        claim.check_id(hook)
        return hook, claim, body

    def _keys(self, hook: WebhookSettings | None, now: datetime) -> tuple[bytes, ...]:
        return ((*hook.secrets(now), *self._nobodys) if hook else self._nobodys)[: len(self._nobodys)]

    def _claim(self, hook: WebhookSettings, headers: Mapping[str, str], now: datetime) -> _Claim:
        match hook.scheme:
            case "ductile":
                return _Claim(digests=_hex(headers.get(hook.signature_header.lower(), "")))
            case "github":
                return _github(headers)
            case "standard":
                return self._standard(headers, now)

    def _standard(self, headers: Mapping[str, str], now: datetime) -> _Claim:
        message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        instant = signatures.unix_instant(timestamp)
        if instant is None or not signatures.within(instant, now, self._skew_s):
            return _Claim()
        return _Claim(
            digests=signatures.standard_digests(headers.get("webhook-signature", "")),
            before=(message_id, timestamp),
            delivery_id=message_id,
        )


def _signed_in(hook: WebhookSettings) -> str:
    headers = {"ductile": hook.signature_header.lower(), "github": "x-hub-signature-256"}
    return headers.get(hook.scheme, "webhook-signature")


def _github(headers: Mapping[str, str]) -> _Claim:
    return _Claim(
        digests=_hex(headers.get("x-hub-signature-256", ""), prefix_needed=True),
        delivery_id=headers.get("x-github-delivery", ""),
        event_type=headers.get("x-github-event", ""),
    )


def _hex(text: str, *, prefix_needed: bool = False) -> tuple[bytes, ...]:
    found = signatures.hex_digest(text.strip(), prefix_needed=prefix_needed)
    return (found,) if found else ()


def _mapping(hook: WebhookSettings, event_type: str, *, action: str) -> EventMapping | None:
    wanted = (f"{event_type}.{action}", event_type, ANY_TYPE)
    return next((hook.events[name] for name in wanted if name in hook.events), None)


def _ids(hook: WebhookSettings, claim: _Claim, *, body: bytes, document: JsonValue) -> tuple[str, str]:
    own = digest(body)
    match hook.scheme:
        case "standard":
            return claim.delivery_id, claim.delivery_id
        case "ductile" if hook.delivery_id is not None:
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
