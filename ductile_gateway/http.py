"""What the gateway answers over HTTP: events from outside at one listener; liveness, readiness and metrics at another.

An event. 202: it is durable on the bus, now or before. 200: a webhook's delivery is not mapped. Errors are
`{"error": "<text>"}`. Path and Host are checked before any route: a browser that was tricked into another name for this
address is turned away. Probes are answered under any Host, metrics only under those of the settings.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ductile_gateway.webhooks.inbound import Inbound, Taken
from ductile_gateway.webhooks.mapping import RequestRefused
from ductile_gateway.webhooks.settings import IngressSettings
from ductile_gateway.webhooks.signatures import PEER
from groundwork.http.requests import Bodies, BodyRefused, has_a_path, host
from groundwork.http.server import serve_http
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.serving import address, listening
from groundwork.telemetry.metrics import CONTENT_TYPE

NOTHING = "there is nothing at this path"
WRONG_HOST = "this service does not answer to this Host: add it to `{}allowed_hosts`"

log = logging.getLogger(__name__)

Told = Callable[[str, str], None]
"""Takes how an event came, `relay` or `webhook`, and what came of it."""


async def answer_probes(
    listener: socket.socket,
    wrong: Callable[[], Mapping[str, str]],
    metrics: Callable[[], Awaitable[bytes]],
    *,
    allowed_hosts: Collection[str],
) -> None:
    """`wrong`: what is wrong with each thing that has to be there; empty where nothing is."""
    allowed = frozenset(map(str.lower, allowed_hosts))

    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(_: Request) -> Response:
        checks = wrong()
        ready = not any(checks.values())
        told = {name: why or "ok" for name, why in checks.items()}
        return JSONResponse({"ready": ready, "checks": told}, 200 if ready else 503)

    async def counted(request: Request) -> Response:
        if host(request.scope) not in allowed:
            return JSONResponse({"error": WRONG_HOST.format("gateway.http.")}, 421)
        return Response(await metrics(), headers={"Content-Type": CONTENT_TYPE})

    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", counted)])
    app.router.redirect_slashes = False
    log.info("probes are answered", extra={"http": address(listener)})
    await serve_http(app, listener)


async def serve_ingress(settings: IngressSettings, inbound: Inbound, *, told: Told) -> None:
    """Take events from outside until cancelled; `told` of each. Raises Misconfigured or Broken."""
    async with listening(settings.host, settings.port, who="gateway") as listener, asyncio.TaskGroup() as group:
        group.create_task(serve_http(create_ingress(settings, inbound, told=told), listener))
        log.info("events from outside are taken", extra={"http": address(listener)})


def create_ingress(settings: IngressSettings, inbound: Inbound, *, told: Told) -> ASGIApp:
    bodies, allowed = Bodies(settings.max_body_bytes), frozenset(map(str.lower, settings.allowed_hosts))

    async def relay(request: Request) -> JSONResponse:
        with _telling(told, "relay"):
            headers, body = await _read(bodies, request)
            taken = await inbound.relay(request.scope["path"], headers, body)
        told("relay", "accepted")
        return JSONResponse({"status": "accepted", "peer": headers[PEER.lower()].strip()} | _said(taken), 202)

    async def webhook(request: Request) -> JSONResponse:
        with _telling(told, "webhook"):
            taken = await inbound.webhook(request.path_params["name"], *await _read(bodies, request))
        told("webhook", "accepted" if taken else "ignored")
        if taken is None:
            return JSONResponse({"status": "ignored"})
        return JSONResponse({"status": "accepted"} | _said(taken), 202)

    app = Starlette(
        routes=[
            Route("/ingest/ductile", relay, methods=["POST"]),
            Route("/webhooks/{name}", webhook, methods=["POST"]),
        ],
        exception_handlers=dict.fromkeys((RequestRefused, HTTPException, Failure, Exception), _failed),
    )
    app.router.redirect_slashes = False

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = app
        if scope["type"] == "http" and not has_a_path(scope):
            answer = JSONResponse({"error": NOTHING}, 404)
        elif scope["type"] == "http" and host(scope) not in allowed:
            answer = JSONResponse({"error": WRONG_HOST.format("")}, 421)
        await answer(scope, receive, send)

    return guarded


@contextlib.contextmanager
def _telling(told: Told, ingress: str) -> Iterator[None]:
    try:
        yield
    except (RequestRefused, Failure) as error:
        told(ingress, "refused" if isinstance(error, RequestRefused) else "put_off")
        raise


async def _read(bodies: Bodies, request: Request) -> tuple[Mapping[str, str], bytes]:
    try:
        body = await bodies.read(request)
    except BodyRefused as error:
        raise RequestRefused(error.status, str(error)) from error
    times = Counter(name for name, _ in request.headers.items())
    return {name: value for name, value in request.headers.items() if times[name] == 1}, body


def _said(taken: Taken) -> dict[str, object]:
    event_type, event = taken
    return {"event_type": event_type, "receiver_event_id": event.key, "job_id": event.about}


async def _failed(request: Request, error: Exception) -> JSONResponse:
    status, text, headers = 500, "the gateway failed at this request; its log says how", dict[str, str]()
    match error:
        case RequestRefused():
            log.info("refused", extra={"path": request.scope["path"][:80], "status": error.status, "why": error.why})
            # The rest of a body that was not read is not worth reading.
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
