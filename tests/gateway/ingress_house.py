"""The ingress behind its HTTP application: a bus and a record in memory, a clock that stands still, and senders."""

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import httpx2
from starlette.types import ASGIApp

from ductile_gateway.ingress.http import create_app
from ductile_gateway.ingress.intake import Deliveries, Intake
from ductile_gateway.ingress.settings import IngressSettings
from ductile_gateway.ports import Artifacts, Bus, Clock
from groundwork.http.listener import listening
from groundwork.http.server import serve_http
from groundwork.service.errors import TryAgain
from schemas.catalog import ToolOffer
from schemas.events import INBOUND
from tests.gateway.parts import RUN, MemoryArtifacts, MemoryBus, StoppedClock

HOST = "http://127.0.0.1:8710"
INGEST = "/ingest/ductile"
SECRET, NEXT_SECRET = "the secret of v1", "the secret of v2"
NOW = "2026-11-21T12:00:00Z"
UNIX_NOW = 1795262400
RESULT = {"run_id": RUN, "step": 1, "tool": "fetch", "status": "ok", "result": {"summary": "done"}, "completed_at": NOW}

PEERS: dict[str, Any] = {
    "ductile-test": {
        "keys": [{"id": "v1", "secret": SECRET}, {"id": "v2", "secret": NEXT_SECRET}],
        "accept": ["agentic.start", "agentic.tool_result", "report.done", "alarm.raised", "person.answered"],
        "events": {
            "alarm.raised": {"to": "agentic.start", "goal": "Look into {/payload/what}."},
            "person.answered": {
                "to": "agentic.signal",
                "run_id": "/payload/run",
                "kind": "answer",
                "message": "{/payload/words}",
            },
        },
    }
}


class MemoryDeliveries:
    """The record in memory; while `down` it stores nothing."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], tuple[str, datetime]] = {}
        self.down = False

    async def find(self, source: str, identity: str) -> str | None:
        return self.kept.get((source, identity), (None, None))[0]

    async def record(self, source: str, identity: str, *, event_key: str, at: datetime) -> None:
        if self.down:
            raise TryAgain("no room")
        self.kept.setdefault((source, identity), (event_key, at))

    async def forget_before(self, instant: datetime) -> None:
        self.kept = {delivery: (key, at) for delivery, (key, at) in self.kept.items() if at >= instant}


class House:
    """An ingress with its surroundings."""

    def __init__(
        self,
        *,
        bus: Bus | None = None,
        artifacts: Artifacts | None = None,
        deliveries: Deliveries | None = None,
        clock: Clock | None = None,
        offers: Sequence[ToolOffer] = (),
        **settings: Any,
    ) -> None:
        self.settings = IngressSettings.model_validate({"peers": PEERS} | settings)
        self.bus: Any = bus or MemoryBus()
        self.artifacts: Any = artifacts or MemoryArtifacts()
        self.deliveries: Any = deliveries or MemoryDeliveries()
        self.clock: Any = clock or StoppedClock()
        self.connected = True
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """What came of the events, by how they came."""
        within_s, most = self.settings.answer_within_s, self.settings.max_in_hand
        intake = Intake(self.bus, self.artifacts, deliveries=self.deliveries, within_s=within_s, max_in_hand=most)
        self.app: ASGIApp = create_app(
            self.settings,
            intake,
            find_offer={offer.name: offer for offer in offers}.get,
            clock=self.clock,
            connected=lambda: self.connected,
            told=self._note,
        )

    def _note(self, ingress: str, outcome: str) -> None:
        self.outcomes[ingress, outcome] += 1

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        async with self.client() as client:
            return await client.get(path, headers=headers)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        async with self.client() as client:
            raw = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
            return await client.post(path, content=body, headers=raw)

    async def relay(self, event: Mapping[str, Any], **changed: Any) -> httpx2.Response:
        """Send an envelope, signed; `changed` as in `signed`."""
        body = json.dumps(event).encode()
        return await self.post(INGEST, body, signed(body, **changed))

    def events(self) -> list[dict[str, Any]]:
        """What is on the bus, each as the agent would read it."""
        return [read_event(subject, body) for subject, _, body, _ in self.bus.messages]

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url=HOST, trust_env=False)


@contextlib.asynccontextmanager
async def on_the_wire(house: House) -> AsyncIterator[int]:
    """The house on a real socket; its port."""
    async with listening("127.0.0.1", 0, who="gateway") as listener:
        serving = asyncio.ensure_future(serve_http(house.app, listener))
        try:
            yield int(listener.getsockname()[1])
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


def read_event(subject: str, body: bytes) -> dict[str, Any]:
    message: dict[str, Any] = INBOUND[subject].model_validate_json(body).model_dump(mode="json", exclude_none=True)
    return message


def an_event(
    event_type: str = "agentic.tool_result", payload: Mapping[str, Any] = RESULT, **others: Any
) -> dict[str, Any]:
    """An envelope of Ductile's relay."""
    origin = {"instance": "ductile-test", "plugin": "core.relay", "job_id": "job-1", "event_id": "event-1"}
    return {"event": {"type": event_type, "payload": dict(payload)}, "origin": origin} | others


def signed(
    body: bytes,
    *,
    secret: str = SECRET,
    timestamp: str = NOW,
    path: str = INGEST,
    without: str = "",
    **headers: str,
) -> dict[str, str]:
    """The headers of Ductile's relay; `headers` replace some of them, written with underscores."""
    message = f"POST\n{path}\n{timestamp}\n".encode() + body
    sent = {
        "x-ductile-peer": "ductile-test",
        "x-ductile-key-id": "v1",
        "x-ductile-timestamp": timestamp,
        "x-ductile-signature": hmac.new(secret.encode(), message, hashlib.sha256).hexdigest(),
    }
    replaced = {f"x-ductile-{name.replace('_', '-')}": value for name, value in headers.items()}
    return {name: value for name, value in (sent | replaced).items() if name != f"x-ductile-{without}"}


def error_of(answer: httpx2.Response) -> str:
    body = answer.json()
    assert body.keys() == {"error"}
    return str(body["error"])
