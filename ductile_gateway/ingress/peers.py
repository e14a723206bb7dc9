"""Events that a Ductile relays: signed, checked as Ductile's own ingress does, and answered in its words.

An unknown peer or key is answered like a wrong signature, in the same time, so that names cannot be found by asking.
"""

from collections.abc import Mapping
from datetime import datetime
from secrets import token_bytes

from ductile_gateway import signatures
from ductile_gateway.ductile import relay_wire
from ductile_gateway.ductile.answers import FORBIDDEN
from ductile_gateway.ductile.relay_wire import KEY_ID, PEER, SIGNATURE, TIMESTAMP
from ductile_gateway.ingress.intake import Acceptance, Incoming, Intake, digest, read_json
from ductile_gateway.ingress.mapping import Origin, RequestRefused, of_relayed
from ductile_gateway.ingress.results import FindOffer
from ductile_gateway.ingress.settings import IngressSettings, PeerSettings
from ductile_gateway.ports import Clock
from schemas.envelope import TRACEPARENT


class Peers:
    def __init__(self, settings: IngressSettings, intake: Intake, *, find_offer: FindOffer, clock: Clock) -> None:
        self._settings = settings
        self._find_offer = find_offer
        self._intake = intake
        self._clock = clock
        self._nobodys = token_bytes(32)

    async def relay(self, incoming: Incoming) -> tuple[str, Acceptance]:
        now = self._clock.now()
        sent = {name: incoming.headers.get(name.lower(), "").strip() for name in (PEER, KEY_ID, TIMESTAMP, SIGNATURE)}
        self._check_headers(sent, now)
        body = await incoming.read()
        message = relay_wire.signed_part(incoming.method, incoming.path, sent[TIMESTAMP], body)
        name, peer = sent[PEER], self._settings.peers.get(sent[PEER])
        found, (secrets, flaw) = signatures.hex_digest(sent[SIGNATURE]), self._secrets(peer, sent[KEY_ID], now)
        if not signatures.signed_by_any(secrets, message, [found] if found else []) or peer is None:
            raise RequestRefused(403, FORBIDDEN, why=flaw or "the signature is not that of this body and time")
        event = _read(body)
        if event.instance not in ("", name):
            raise RequestRefused(403, "origin instance mismatch")
        if event.type not in peer.accept:
            raise RequestRefused(422, "event type not allowed for peer")
        origin = Origin(
            source=name,
            event_id=event.event_id or digest(body),
            at=now,
            keeps_names=True,
            traceparent=_traceparent(event, incoming),
        )
        outgoing = of_relayed(event, peer.events.get(event.type), origin, self._find_offer)
        identity = f"{event.type}:{origin.event_id}"
        return name, await self._intake.take(event.type, outgoing, origin=origin, identity=identity)

    def _check_headers(self, sent: Mapping[str, str], now: datetime) -> None:
        if not sent[TIMESTAMP]:
            raise RequestRefused(403, "missing relay timestamp")
        instant = relay_wire.read_instant(sent[TIMESTAMP])
        if instant is None:
            raise RequestRefused(403, "invalid relay timestamp")
        if not signatures.within(instant, now, self._settings.allowed_skew_s):
            raise RequestRefused(403, "relay timestamp outside allowed clock skew")
        if not sent[KEY_ID] and self._settings.require_key_id:
            raise RequestRefused(403, "missing relay key id")
        if not sent[SIGNATURE]:
            raise RequestRefused(403, "missing relay signature")

    def _secrets(self, peer: PeerSettings | None, key_id: str, now: datetime) -> tuple[list[bytes], str]:
        named = [key for key in peer.keys if not key_id or key.id == key_id] if peer else []
        holding = [key.secret.get_secret_value().encode() for key in named if key.holds(now)]
        flaw = "unknown relay peer" if peer is None else "the key is past its `until`" if named else "unknown key id"
        return (holding, "") if holding else ([self._nobodys], flaw)


def _traceparent(event: relay_wire.ReceivedEvent, incoming: Incoming) -> str | None:
    carried = event.baggage.get(TRACEPARENT)
    return carried if isinstance(carried, str) else incoming.headers.get(TRACEPARENT)


def _read(body: bytes) -> relay_wire.ReceivedEvent:
    try:
        return relay_wire.read_received(read_json(body))
    except relay_wire.Malformed as error:
        raise RequestRefused(400, str(error)) from error
