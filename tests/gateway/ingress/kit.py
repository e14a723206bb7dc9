"""The ingress as an application, over a bus and artifacts in memory; and its senders."""

import base64
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx2
from starlette.types import ASGIApp

from ductile_gateway.ports import ResultBus
from ductile_gateway.webhooks.inbound import Inbound
from ductile_gateway.webhooks.settings import IngressSettings
from groundwork.http import serve_http
from groundwork.service.serving import listening
from schemas.catalog import ToolOffer
from schemas.events import envelope_of
from tests.gateway.parts import NOON, RUN, MemoryArtifacts, MemoryBus
from tests.kit.fakes import still
from tests.kit.waiting import beside

INGEST = "/ingest/ductile"
SECRET, NEXT_SECRET = "the secret of v1", "the secret of v2"
NOW = "2026-11-21T12:00:00Z"
UNIX_NOW = 1795262400
RESULT = {"run_id": RUN, "step": 1, "tool": "fetch", "status": "ok", "result": {"summary": "done"}, "completed_at": NOW}
PERSON = {"to": "agentic.signal", "run_id": "/payload/run", "kind": "answer", "message": "{/payload/words}"}
PEERS: dict[str, Any] = {
    "ductile-test": {
        "keys": [{"id": "v1", "secret": SECRET}, {"id": "v2", "secret": NEXT_SECRET}],
        "accept": ["agentic.start", "agentic.tool_result", "report.done", "alarm.raised", "person.answered"],
        "events": {
            "alarm.raised": {"to": "agentic.start", "goal": "Look into {/payload/what}."},
            "person.answered": PERSON,
        },
    }
}


class OnceBus(MemoryBus):
    """Deduplicates by Msg-Id."""

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        if all(name != key for _, name, _, _ in self.messages):
            await super().publish(subject, body, key=key, headers=headers)


class Ingress:
    def __init__(
        self,
        *,
        bus: ResultBus | None = None,
        within_s: float = 5.0,
        offers: Sequence[ToolOffer] = (),
        **settings: Any,
    ) -> None:
        chosen = IngressSettings.model_validate({"peers": PEERS} | settings)
        self.bus: Any = bus or OnceBus()
        self.artifacts: Any = MemoryArtifacts()
        self.clock = still(NOON)
        find_offer = {offer.name: offer for offer in offers}.get
        inbound = Inbound(chosen, self.bus, self.artifacts, find_offer, lambda *_: None, within_s=within_s)
        self.app: ASGIApp = inbound.app()

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        raw = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
        transport = httpx2.ASGITransport(self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8710", trust_env=False) as client:
            return await client.post(path, content=body, headers=raw)

    async def relay(self, event: Mapping[str, Any], **changed: Any) -> httpx2.Response:
        body = json.dumps(event).encode()
        return await self.post(INGEST, body, signed(body, **changed))

    def events(self) -> list[dict[str, Any]]:
        read = (envelope_of(subject).model_validate_json(body) for subject, _, body, _ in self.bus.messages)
        return [event.model_dump(mode="json", exclude_none=True) for event in read]

    def payload(self) -> dict[str, Any]:
        (event,) = self.events()
        found: dict[str, Any] = event["payload"]
        return found


@contextlib.asynccontextmanager
async def on_the_wire(ingress: Ingress) -> AsyncIterator[int]:
    """Port of the ingress on a real socket."""
    async with listening("127.0.0.1", 0, who="gateway") as listener, beside(serve_http(ingress.app, listener)):
        yield int(listener.getsockname()[1])


def an_event(
    event_type: str = "agentic.tool_result", payload: Mapping[str, Any] = RESULT, **others: Any
) -> dict[str, Any]:
    origin = {"instance": "ductile-test", "plugin": "core.relay", "job_id": "job-1", "event_id": "event-1"}
    return {"event": {"type": event_type, "payload": dict(payload)}, "origin": origin} | others


def signed(
    body: bytes, *, secret: str = SECRET, timestamp: str = NOW, path: str = INGEST, without: str = "", **headers: str
) -> dict[str, str]:
    """Headers of Ductile's relay; `headers` replaces some of them, written with underscores."""
    sent = {
        "x-ductile-peer": "ductile-test",
        "x-ductile-key-id": "v1",
        "x-ductile-timestamp": timestamp,
        "x-ductile-signature": hex_of(f"POST\n{path}\n{timestamp}\n".encode() + body, secret),
    }
    replaced = {f"x-ductile-{name.replace('_', '-')}": value for name, value in headers.items()}
    return {name: value for name, value in (sent | replaced).items() if name != f"x-ductile-{without}"}


def hex_of(message: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def standard(body: bytes, *, at: str = str(UNIX_NOW), name: str = "msg_1", key: bytes) -> dict[str, str]:
    mac = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(mac).decode()}"
    return {"webhook-id": name, "webhook-timestamp": at, "webhook-signature": signature}


def error_of(answer: httpx2.Response) -> str:
    body = answer.json()
    assert body.keys() == {"error"}
    return str(body["error"])
