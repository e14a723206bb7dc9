"""Events that a Ductile relays: signed, checked in the order of Ductile's own ingress, and answered as it answers."""

from collections.abc import Mapping
from datetime import datetime

from ductile_gateway.calls.refusals import Refused
from ductile_gateway.ingress import signatures
from ductile_gateway.ingress.envelope import read_envelope
from ductile_gateway.ingress.intake import Incoming, Intake, Receipt, digest, read_json
from ductile_gateway.ingress.mapping import Origin, of_relayed
from ductile_gateway.ingress.settings import IngressSettings, PeerSettings
from ductile_gateway.ports import Clock

PEER = "x-ductile-peer"
KEY_ID = "x-ductile-key-id"
TIMESTAMP = "x-ductile-timestamp"
SIGNATURE = "x-ductile-signature"


class Peers:
    """The peers that may relay."""

    def __init__(self, settings: IngressSettings, intake: Intake, *, clock: Clock) -> None:
        self._settings = settings
        self._intake = intake
        self._clock = clock

    async def relay(self, incoming: Incoming) -> tuple[str, Receipt]:
        """The peer's name, and what came of its event. Raises Refused, TryAgain or Broken."""
        now = self._clock.now()
        sent = {name: incoming.headers.get(name, "").strip() for name in (PEER, KEY_ID, TIMESTAMP, SIGNATURE)}
        name, peer = sent[PEER], self._settings.peers.get(sent[PEER])
        if peer is None:
            raise Refused(403, "unknown relay peer")
        self._check_time(sent[TIMESTAMP], now)
        secrets = self._secrets(peer, sent[KEY_ID])
        body = await _signed_body(incoming, sent, secrets)
        event = read_envelope(read_json(body))
        if event.instance not in ("", name):
            raise Refused(403, "origin instance mismatch")
        if event.type not in peer.accept:
            raise Refused(422, "event type not allowed for peer")
        origin = Origin(source=name, event_id=event.event_id or digest(body), at=now, keeps_names=True)
        outgoing = of_relayed(event, peer.events.get(event.type), origin)
        identity = f"{event.type}:{origin.event_id}"
        return name, await self._intake.take(event.type, outgoing, origin=origin, identity=identity)

    def _check_time(self, timestamp: str, now: datetime) -> None:
        if not timestamp:
            raise Refused(403, "missing relay timestamp")
        instant = signatures.relay_instant(timestamp)
        if instant is None:
            raise Refused(403, "invalid relay timestamp")
        if not signatures.within(instant, now, self._settings.allowed_skew_s):
            raise Refused(403, "relay timestamp outside allowed clock skew")

    def _secrets(self, peer: PeerSettings, key_id: str) -> list[bytes]:
        if not key_id and self._settings.require_key_id:
            raise Refused(403, "missing relay key id")
        chosen = [key for key in peer.keys if not key_id or key.id == key_id]
        if not chosen:
            raise Refused(403, "relay key id mismatch")
        return [key.secret.get_secret_value().encode() for key in chosen]


async def _signed_body(incoming: Incoming, sent: Mapping[str, str], secrets: list[bytes]) -> bytes:
    if not sent[SIGNATURE]:
        raise Refused(403, "missing relay signature")
    body = await incoming.read()
    message = signatures.relayed(incoming.method, incoming.path, sent[TIMESTAMP], body)
    found = signatures.hex_digest(sent[SIGNATURE])
    if found is None or not signatures.signed_by_any(secrets, message, [found]):
        raise Refused(403, "forbidden")
    return body
