"""Liveness, readiness and metrics over HTTP. Metrics need an allowed Host, against DNS rebinding; probes do not."""

import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from groundwork.http import host, serve_http
from groundwork.service.serving import address
from groundwork.telemetry.metrics import CONTENT_TYPE

WRONG_HOST = "this service does not answer to this Host: add it to `gateway.http.allowed_hosts`"

log = logging.getLogger(__name__)


async def answer_probes(
    listener: socket.socket,
    wrong: Callable[[], Mapping[str, str]],
    metrics: Callable[[], Awaitable[bytes]],
    *,
    allowed_hosts: Collection[str],
) -> None:
    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(_: Request) -> Response:
        checks = wrong()
        ready = not any(checks.values())
        answers = {name: why or "ok" for name, why in checks.items()}
        return JSONResponse({"ready": ready, "checks": answers}, 200 if ready else 503)

    async def counted(request: Request) -> Response:
        if host(request.scope) not in allowed_hosts:
            return JSONResponse({"error": WRONG_HOST}, 421)
        return Response(await metrics(), headers={"Content-Type": CONTENT_TYPE})

    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", counted)])
    app.router.redirect_slashes = False
    log.info("probes are answered", extra={"http": address(listener)})
    await serve_http(app, listener)
