"""Publishes deliveries of webhooks and of Ductile's relay on the bus.

    POST ─▶ signature ─▶ mapping ─▶ bus ─▶ 202

202: durable on the bus, now or before. 200: a webhook's delivery without a mapping. Errors are `{"error": "<text>"}`.
Path and Host are checked first, against DNS rebinding.

A repeated delivery has the same Msg-Id: the bus drops a copy that comes soon, and the agent ignores a later one. An
unknown name or key is answered like a wrong signature. Ductile and GitHub sign the body alone, so their deliveries are
identified by it: anybody could change an id in an unsigned header.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from functools import partial
from secrets import token_bytes

from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ductile_gateway.ductile.api import FORBIDDEN
from ductile_gateway.ports import ResultBus, ToolArtifactStore
from ductile_gateway.webhooks import mapping
from ductile_gateway.webhooks.mapping import Outgoing, RequestRefused
from ductile_gateway.webhooks.settings import IngressSettings
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, Claim, read_claim, signed_by_any
from groundwork.http import BodyReader, BodyRefused, host, serve_http
from groundwork.service import strict
from groundwork.service.errors import Failure, GiveUp, TryAgain, in_time
from groundwork.service.machine import utc_now
from groundwork.service.serving import address, listening
from groundwork.telemetry.span import context_of
from schemas import envelope, subjects
from schemas.envelope import TRACEPARENT
from schemas.values import dataclass

SOURCE = "/agentic-loop/ductile-gateway/ingress"
NOTHING = "there is nothing at this path"
WRONG_HOST = "this service does not answer to this Host: add it to `gateway.ingress.allowed_hosts`"
FORM = "GitHub sent a form, its default: choose the content type application/json for this webhook there"
UNSIGNED = "there is no such sender, no valid key of it signed this, or the clocks are over five minutes apart"
ANY_TYPE = "*"
WITHIN_S = 8.0
"""Limit for the bus: less than senders wait for an answer."""

_UNKNOWN = (token_bytes(32),)
"""Keys of unknown senders: checking them takes as long as those of known ones."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Inbound:
    """`count` counts events by their source, `relay` or `webhook`, and outcome. `headers`: by lower-case name, without
    repeated ones."""

    settings: IngressSettings
    bus: ResultBus
    artifacts: ToolArtifactStore
    find_offer: mapping.FindOffer
    count: Callable[[str, str], None]
    within_s: float = WITHIN_S

    def __post_init__(self) -> None:
        self._bodies = BodyReader(self.settings.max_body_bytes)

    async def serve(self) -> None:
        async with listening(self.settings.host, self.settings.port, who="gateway") as listener:
            log.info("events from outside are accepted", extra={"http": address(listener)})
            await serve_http(self.app(), listener)

    def app(self) -> ASGIApp:
        app = Starlette(
            routes=[
                Route("/ingest/ductile", partial(self._respond, "relay"), methods=["POST"]),
                Route("/webhooks/{name}", partial(self._respond, "webhook"), methods=["POST"]),
            ],
            exception_handlers=dict.fromkeys((RequestRefused, BodyRefused, HTTPException, Failure, Exception), _failed),
        )
        app.router.redirect_slashes = False
        return app

    async def _respond(self, source: str, request: Request) -> JSONResponse:
        if not request.scope["path"].isprintable():  # a route would match in spite of a line feed at the end
            raise RequestRefused(404, NOTHING)
        if host(request.scope) not in self.settings.allowed_hosts:
            raise RequestRefused(421, WRONG_HOST)
        try:
            body, number = await self._bodies.read(request), Counter(request.headers.keys())
            headers = {name: value for name, value in request.headers.items() if number[name] == 1}
            if source == "relay":
                event: Outgoing | None = self._relayed(request.scope["path"], headers, body)
            else:
                event = self._webhook(request.path_params["name"], headers, body)
            if event:
                await self._publish(event)
        except (RequestRefused, BodyRefused, Failure) as error:
            self.count(source, "put_off" if isinstance(error, Failure) else "refused")
            raise
        self.count(source, "accepted" if event else "ignored")
        if event is None:
            return JSONResponse({"status": "ignored"})
        answer = {"event_type": event.origin.type, "receiver_event_id": event.key, "job_id": event.about}
        peer = {"peer": event.origin.source} if source == "relay" else {}
        return JSONResponse({"status": "accepted"} | answer | peer, 202)

    def _relayed(self, path: str, headers: Mapping[str, str], body: bytes) -> Outgoing:
        now, name = utc_now(), headers.get(PEER.lower(), "").strip()
        peer, claim = self.settings.peers.get(name), read_claim("relay", headers, body, path=path, now=now)
        keys = peer.keys_at(now, headers.get(KEY_ID.lower(), "").strip()) if peer else ()
        if not self._is_signed(name, keys, claim) or peer is None:
            raise RequestRefused(403, FORBIDDEN)
        relayed = mapping.read_relayed(read_json(body))
        kind, event_id = relayed.event.type, relayed.id or claim.delivery_id
        if relayed.origin and relayed.origin.instance not in (None, "", name):
            raise RequestRefused(403, "origin instance mismatch")
        if kind not in peer.accept:
            raise RequestRefused(422, "event type not allowed for peer")
        carried = (relayed.baggage or {}).get(TRACEPARENT)
        traceparent = carried if isinstance(carried, str) and context_of(carried) else headers.get(TRACEPARENT)
        origin = mapping.Origin(name, kind, event_id, now, traceparent=traceparent)
        return mapping.of_relayed(relayed, peer.events.get(kind), origin, self.find_offer)

    def _webhook(self, name: str, headers: Mapping[str, str], body: bytes) -> Outgoing | None:
        now = utc_now()
        hook = self.settings.webhooks.get(name)
        scheme, header = (hook.scheme, hook.signature_header) if hook else ("ductile", "")
        claim = read_claim(scheme, headers, body, path="", now=now, header=header)
        if not self._is_signed(name, hook.keys_at(now) if hook else (), claim) or hook is None:
            raise RequestRefused(401, "unauthorized")
        if hook.scheme == "github" and body.startswith(b"payload="):
            raise RequestRefused(415, FORM)
        document = read_json(body)
        event_type = headers.get("x-github-event", "") if hook.scheme == "github" else _text(document, "type")
        if hook.scheme == "github" and not may_be(event_type, document):
            raise RequestRefused(422, "the header X-GitHub-Event does not say what the body is")
        names = (f"{event_type}.{_text(document, 'action')}", event_type, ANY_TYPE)
        chosen = next((hook.events[one] for one in names if one in hook.events), None)
        if chosen is None:
            return None
        event_id = claim.delivery_id
        if hook.delivery_id is not None and hook.scheme == "ductile":
            found = mapping.find(document, hook.delivery_id)
            if not isinstance(found, str) or not found:
                raise RequestRefused(422, f"the event has no text at {hook.delivery_id}, where its id should be")
            event_id = found
        origin = mapping.Origin(name, event_type, event_id, now, untrusted=True, traceparent=headers.get(TRACEPARENT))
        return mapping.of_document(chosen, document, origin, self.find_offer)

    def _is_signed(self, name: str, keys: Sequence[bytes], claim: Claim) -> bool:
        signed = signed_by_any(keys or _UNKNOWN, claim.message, claim.digests)
        if not (signed and keys):
            log.info("not signed", extra={"sender": name[:48], "why": UNSIGNED})
        return signed and bool(keys)

    async def _publish(self, event: Outgoing) -> None:
        try:
            async with in_time("the bus", self.within_s):
                for one in event.artifacts:
                    await self.artifacts.put(f"{event.about}/{one.name}", one.content, one.content_type)
                await self.bus.publish(event.subject, event.body, key=event.key, headers=_headers(event))
        except GiveUp as error:
            text = "the result is too large for an event, and for a run of this name no artifact can be stored"
            raise RequestRefused(422, text) from error
        log.info("event from outside", extra={"source": event.origin.source, "event": event.subject, "key": event.key})


async def _failed(request: Request, error: Exception) -> JSONResponse:
    status, text, headers = 500, "the gateway failed at this request; its log says how", dict[str, str]()
    match error:
        case RequestRefused() | BodyRefused():
            log.info("refused", extra={"path": request.scope["path"][:80], "status": error.status, "why": str(error)})
            # Nothing reads the rest of the body.
            headers = {"Connection": "close"} if error.status in (408, 413) else {}
            status, text = error.status, str(error)
        case HTTPException():
            status, text = error.status_code, NOTHING if error.status_code == 404 else str(error.detail)
            headers = dict(error.headers or {})
        case Failure():
            delay_s = error.delay_s if isinstance(error, TryAgain) else 5
            level = logging.WARNING if isinstance(error, TryAgain) else logging.CRITICAL
            log.log(level, "an event from outside is not taken now", extra={"why": str(error)})
            status, text, headers = 503, "not taken for now: send it again", {"Retry-After": f"{max(1, delay_s):.0f}"}
    return JSONResponse({"error": text}, status, headers=headers)


def read_json(body: bytes) -> JsonValue:
    try:
        return strict.read(body)
    except strict.NotStrictJson as error:
        raise RequestRefused(400, f"invalid JSON body: it {error}") from None


def _text(document: JsonValue, name: str) -> str:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def _headers(event: Outgoing) -> dict[str, str]:
    origin = event.origin
    source, about = f"{SOURCE}/{origin.source}", "" if event.subject == subjects.START else event.about
    at = origin.at.astimezone(UTC)
    headers = envelope.event_headers(event.subject, dedupe_key=event.key, source=source, at=at, run_id=about)
    if context_of(origin.traceparent) and origin.traceparent:
        headers[TRACEPARENT] = origin.traceparent
    return headers


_GITHUB_FIELDS = {
    "issue_comment": {"issue", "comment"},
    "issues": {"issue"},
    "pull_request_review_comment": {"pull_request", "comment"},
    "pull_request_review_thread": {"pull_request", "thread"},
    "pull_request_review": {"pull_request", "review"},
    "discussion_comment": {"discussion", "comment"},
    "deployment_review": {"workflow_run", "reviewers"},
    "commit_comment": {"comment"},
    "deployment_status": {"deployment", "deployment_status"},
    "deployment_protection_rule": {"deployment", "deployment_callback_url"},
    "membership": {"member", "team"},
    "workflow_dispatch": {"workflow", "inputs"},
    "create": {"ref", "ref_type", "master_branch"},
    "delete": {"ref", "ref_type"},
    "push": {"ref", "commits"},
    "fork": {"forkee"},
    "repository_dispatch": {"branch", "client_payload"},
    "status": {"sha", "state", "context"},
    "ping": {"zen"},
    **{name: {name} for name in ("pull_request", "discussion", "workflow_job", "check_run", "deployment")},
    **{name: {name} for name in ("workflow_run", "check_suite", "release", "milestone", "label", "member", "package")},
}
"""Top-level fields by event type (GitHub, "Webhook events and payloads"); the first type that fits counts."""


def may_be(event_type: str, body: JsonValue) -> bool:
    """True if a body fits the type; for an unknown type, if it fits no known one."""
    fields = body.keys() if isinstance(body, dict) else set[str]()
    found = next((known for known, marks in _GITHUB_FIELDS.items() if marks <= fields), None)
    return found == event_type if found or event_type in _GITHUB_FIELDS else True
