"""Deliveries from outside, at our gateway and at an unprotected twin: signed as agreed, or as an attack has it."""

import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from ductile_gateway.signatures import standard_headers, standard_key
from tests.attacks.doors import HttpDoor
from tests.attacks.stand import KEYS, STANDARD_KEY

INGEST = "/ingest/ductile"
NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressDoor:
    """Where events come in."""

    door: HttpDoor
    named: str = field(default_factory=lambda: f"{time.time_ns()}-{next(NUMBERS)}")
    """No two deliveries of different attacks are the same."""

    @property
    def protected(self) -> bool:
        return self.door.protected

    def body(self, what: str = "nothing in particular") -> bytes:
        """One that no other attack sends, of the type that GitHub is said to send."""
        return json.dumps({"what": what, "named": self.named, "issue": {}}).encode()

    async def takes(self, path: str, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether something comes of it that did not come of it before."""
        try:
            answer = await self.door.ask("POST", path, content=body, headers=headers)
        except httpx2.TransportError:
            return False
        return answer.status_code == httpx2.codes.ACCEPTED

    async def takes_github(self, body: bytes, **headers: str) -> bool:
        """As GitHub sends it, signed; `headers` replace some of it, with underscores, or leave it out (empty)."""
        sent = {
            "X-Hub-Signature-256": f"sha256={hex_of(body, KEYS['github'])}",
            "X-GitHub-Delivery": self.named,
            "X-GitHub-Event": "issues",
        }
        return await self.takes("/webhooks/github", body, replaced(sent, headers))

    async def takes_standard(self, body: bytes, *, late_s: float = 0, **headers: str) -> bool:
        """As a Standard Webhook, signed `late_s` ago."""
        at = datetime.now(UTC) - timedelta(seconds=late_s)
        sent = standard_headers(self.named, body, [standard_key(STANDARD_KEY)], at=at)
        return await self.takes("/webhooks/standard", body, replaced(sent, headers))

    async def takes_relayed(
        self,
        event: Mapping[str, Any],
        *,
        secret: str = KEYS["peer"],
        late_s: float = 0,
        signed_path: str = INGEST,
        **headers: str,
    ) -> bool:
        """As a peer relays an event."""
        body = json.dumps({"event": event, "origin": {"event_id": self.named}}).encode()
        at = (datetime.now(UTC) - timedelta(seconds=late_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = f"POST\n{signed_path}\n{at}\n".encode() + body
        sent = {
            "X-Ductile-Peer": "ductile-here",
            "X-Ductile-Key-Id": "v1",
            "X-Ductile-Timestamp": at,
            "X-Ductile-Signature": hex_of(message, secret),
        }
        return await self.takes(INGEST, body, replaced(sent, headers))


def hex_of(body: bytes, key: str) -> str:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


def replaced(sent: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """`sent` with what `headers` say of it: another value, or none where that is empty."""
    said = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    every = {name.lower(): value for name, value in sent.items()} | said
    return {name: value for name, value in every.items() if value}
