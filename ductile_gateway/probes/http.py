"""The gateway's own small HTTP listener: liveness, readiness and metrics.

Probes are answered under any Host, metrics only under those of the settings, against DNS rebinding.
"""

import logging
import socket
from collections.abc import Awaitable, Callable, Collection

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ductile_gateway.probes.server import Readiness
from groundwork.http.listener import address
from groundwork.http.requests import host
from groundwork.http.server import serve_http
from groundwork.telemetry.metrics import CONTENT_TYPE

OK = "ok"
NOT_THIS_HOST = "this service does not answer to this Host: add it to `gateway.http.allowed_hosts`"

log = logging.getLogger(__name__)


Metrics = Callable[[], Awaitable[bytes]]


async def answer_probes(
    listener: socket.socket, readiness: Readiness, metrics: Metrics, *, allowed_hosts: Collection[str]
) -> None:
    log.info("probes are answered", extra={"http": address(listener)})
    await serve_http(create_app(readiness, metrics, allowed_hosts), listener)


def create_app(readiness: Readiness, metrics: Metrics, allowed_hosts: Collection[str]) -> Starlette:
    allowed = frozenset(name.lower() for name in allowed_hosts)

    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(_: Request) -> Response:
        wrong = readiness.wrong()
        ready = not any(wrong.values())
        checks = {name: why or OK for name, why in wrong.items()}
        return JSONResponse({"ready": ready, "checks": checks}, 200 if ready else 503)

    async def counted(request: Request) -> Response:
        if host(request.scope) not in allowed:
            return JSONResponse({"error": NOT_THIS_HOST}, 421)
        return Response(await metrics(), headers={"Content-Type": CONTENT_TYPE})

    routes = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", counted)]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app
