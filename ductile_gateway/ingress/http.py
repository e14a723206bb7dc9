"""The ingress over HTTP: two addresses for events, two for probes. Errors are `{"error": "<text>"}`.

202: the event is durable on the bus. 200: a webhook's delivery was known before, or is not mapped. A relayed event that
was known before gets 202 too, because Ductile takes anything else for a failure.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ductile_gateway.ingress.door import Door
from ductile_gateway.ingress.intake import Acceptance, Incoming, Intake
from ductile_gateway.ingress.mapping import RequestRefused
from ductile_gateway.ingress.peers import Peers
from ductile_gateway.ingress.results import FindOffer
from ductile_gateway.ingress.settings import IngressSettings
from ductile_gateway.ingress.webhooks import Webhooks
from ductile_gateway.ports import Clock
from groundwork.http.requests import Bodies, BodyRefused, network_of
from groundwork.service.errors import Broken, Failure, Misconfigured, TryAgain

log = logging.getLogger(__name__)


Told = Callable[[str, str], None]
"""Takes how an event came, `relay` or `webhook`, and what came of it."""


def create_app(
    settings: IngressSettings,
    intake: Intake,
    *,
    find_offer: FindOffer,
    clock: Clock,
    connected: Callable[[], bool],
    told: Told,
) -> FastAPI:
    """The ingress as an ASGI application. `connected`: whether the bus is there. `told`: of each event."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Door, allowed_hosts=settings.allowed_hosts)
    routes = _Routes(
        Peers(settings, intake, find_offer=find_offer, clock=clock),
        Webhooks(settings, intake, find_offer=find_offer, clock=clock),
        connected=connected,
        told=told,
        bodies=Bodies(settings.max_body_bytes),
    )
    app.add_api_route("/healthz", routes.healthz)
    app.add_api_route("/readyz", routes.readyz)
    app.add_api_route("/ingest/ductile", routes.ingest, methods=["POST"], response_model=None)
    app.add_api_route("/webhooks/{name}", routes.webhook, methods=["POST"], response_model=None)
    handlers: dict[type[Exception], Any] = {
        RequestRefused: _refused,
        HTTPException: _by_framework,
        **dict.fromkeys((TryAgain, Broken, Misconfigured), _come_again),
        Exception: _broken,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    return app


class _Routes:
    def __init__(
        self, peers: Peers, webhooks: Webhooks, *, connected: Callable[[], bool], told: Told, bodies: Bodies
    ) -> None:
        self._told = told
        self._peers = peers
        self._webhooks = webhooks
        self._connected = connected
        self._bodies = bodies

    async def healthz(self) -> JSONResponse:
        return JSONResponse({"alive": True})

    async def readyz(self) -> JSONResponse:
        ready = self._connected()
        return JSONResponse(
            {"ready": ready, "checks": {"nats": "ok" if ready else "not connected"}}, 200 if ready else 503
        )

    async def ingest(self, request: Request) -> JSONResponse:
        with self._telling("relay"):
            peer, acceptance = await self._peers.relay(self._incoming(request))
        self._told("relay", "duplicate" if acceptance.duplicate else "accepted")
        return JSONResponse({"status": "accepted", "peer": peer} | _told(acceptance), 202)

    async def webhook(self, name: str, request: Request) -> JSONResponse:
        with self._telling("webhook"):
            acceptance = await self._webhooks.take(name, self._incoming(request))
        status = "ignored" if acceptance is None else "duplicate" if acceptance.duplicate else "accepted"
        self._told("webhook", status)
        if acceptance is None:
            return JSONResponse({"status": status}, 200)
        return JSONResponse({"status": status} | _told(acceptance), 200 if acceptance.duplicate else 202)

    @contextlib.contextmanager
    def _telling(self, ingress: str) -> Iterator[None]:
        try:
            yield
        except RequestRefused:
            self._told(ingress, "refused")
            raise
        except Failure:
            self._told(ingress, "put_off")
            raise

    def _incoming(self, request: Request) -> Incoming:
        return Incoming(
            method=request.method,
            path=request.scope["path"],
            headers=_headers_of(request),
            read=partial(_read, self._bodies, request),
        )


def _headers_of(request: Request) -> Mapping[str, str]:
    times = Counter(name for name, _ in request.headers.items())
    return {name: value for name, value in request.headers.items() if times[name] == 1}


async def _read(bodies: Bodies, request: Request) -> bytes:
    try:
        return await bodies.read(request, whose=network_of(request.scope["client"]))
    except BodyRefused as error:
        raise RequestRefused(error.status, str(error)) from error


def _told(acceptance: Acceptance) -> dict[str, object]:
    return {
        "event_type": acceptance.event_type,
        "receiver_event_id": acceptance.event_key,
        "job_id": acceptance.about,
        "duplicate": acceptance.duplicate,
    }


async def _refused(request: Request, error: RequestRefused) -> JSONResponse:
    log.info("refused", extra={"path": request.scope["path"][:80], "status": error.status, "why": error.why})
    # The rest of a body that was not read is not worth reading.
    headers = {"Connection": "close"} if error.status in (408, 413) else None
    return JSONResponse({"error": str(error)}, error.status, headers=headers)


async def _by_framework(_: Request, error: HTTPException) -> JSONResponse:
    text = "there is nothing at this path" if error.status_code == 404 else str(error.detail)
    return JSONResponse({"error": text}, error.status_code, headers=error.headers)


async def _come_again(_: Request, error: TryAgain | Broken | Misconfigured) -> JSONResponse:
    level = logging.WARNING if isinstance(error, TryAgain) else logging.CRITICAL
    log.log(level, "an event from outside is not taken now", extra={"why": str(error)})
    after = max(1, round(error.delay_s)) if isinstance(error, TryAgain) else 5
    return JSONResponse({"error": "not taken for now: send it again"}, 503, headers={"Retry-After": str(after)})


async def _broken(_: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"error": "the gateway failed at this request; its log says how"}, 500)
