"""The gateway's own small HTTP listener: whether it lives, and whether it is ready.

Probes are answered by any name, because those who send them often know only an address.
"""

import logging
import socket

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ductile_gateway.probes.readiness import Readiness
from groundwork.http.listener import address
from groundwork.http.server import serve_http

OK = "ok"

log = logging.getLogger(__name__)


async def answer_probes(listener: socket.socket, readiness: Readiness) -> None:
    """Answer on a socket that listens, until cancelled."""
    log.info("probes are answered", extra={"http": address(listener)})
    await serve_http(create_app(readiness), listener)


def create_app(readiness: Readiness) -> Starlette:
    """The probes as an ASGI application."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(_: Request) -> Response:
        wrong = readiness.wrong()
        ready = not any(wrong.values())
        checks = {name: why or OK for name, why in wrong.items()}
        return JSONResponse({"ready": ready, "checks": checks}, 200 if ready else 503)

    routes = [Route("/healthz", healthz), Route("/readyz", readyz)]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app
