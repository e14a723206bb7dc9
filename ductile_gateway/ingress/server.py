"""Serves the ingress: its record, its socket, and uvicorn, until it is cancelled."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta

import uvicorn
from starlette.types import ASGIApp

from ductile_gateway.errors import Misconfigured
from ductile_gateway.ingress.http import create_app
from ductile_gateway.ingress.intake import Deliveries, Intake
from ductile_gateway.ingress.settings import IngressSettings
from ductile_gateway.ports import Artifacts, Bus, Clock
from ductile_gateway.tidying import keep_tidy
from groundwork.http.protocol import BoundedProtocol

CLOSE_WITHIN_S = 3

log = logging.getLogger(__name__)


async def serve_ingress(
    settings: IngressSettings,
    *,
    deliveries: Deliveries,
    bus: Bus,
    artifacts: Artifacts,
    clock: Clock,
    connected: Callable[[], bool],
) -> None:
    """Take events from outside until cancelled; at once done where there is nobody to listen to.

    `connected` says whether the bus is there. Raises Misconfigured or Broken.
    """
    if not settings.listens():
        return
    with listening(settings) as listener:
        async with asyncio.TaskGroup() as group:
            intake = Intake(bus, artifacts, deliveries=deliveries, within_s=settings.answer_within_s)
            app = create_app(settings, intake, clock=clock, connected=connected)
            group.create_task(serve_http(app, listener))
            age = timedelta(days=settings.remember_days)
            group.create_task(keep_tidy(deliveries, clock, age, what="deliveries"))
            host, port = listener.getsockname()[:2]
            log.info("events from outside are taken", extra={"http": f"http://{host}:{port}"})


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the root has them. Inherits because uvicorn offers no setting for it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def listening(settings: IngressSettings) -> Iterator[socket.socket]:
    """The socket, inside the context. Raises Misconfigured where it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=1024)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise Misconfigured(
            f"cannot listen on {where} ({error.strerror}): is another gateway running there?"
        ) from error
    with listener:
        yield listener


async def serve_http(
    app: ASGIApp, listener: socket.socket, *, protocol: type[BoundedProtocol] = BoundedProtocol
) -> None:
    """Answer until cancelled; what is in hand then has a moment to end."""
    # No `limit_concurrency`: it would turn the probes away, too. Protocol and door bound what there is at a time.
    config = uvicorn.Config(
        app,
        loop="none",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",  # that it has started is said by us
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_WITHIN_S,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise
