"""uvicorn, as both services serve HTTP: on a socket that is there, bounded, without signal handlers and logs."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from groundwork.http.protocol import BoundedProtocol

CLOSE_WITHIN_S = 3
ANSWERED_WITHIN_S = 1.0
"""How long those who wait, and are told that they do so in vain, have to be answered."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: ASGIApp, protocol: type[BoundedProtocol] = BoundedProtocol) -> uvicorn.Server:
    """To be run by `serve(sockets=[…])`. Without `limit_concurrency`, which would turn the probes away, too."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",  # that it has started is said by the service
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_WITHIN_S,
    )
    return _Server(config)


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    *,
    stopping: Callable[[], object] | None = None,
) -> None:
    """Until cancelled; requests in hand have a moment to end. `stopping` ends what does not end by itself: a shorter
    moment."""
    server = http_server(app, protocol)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        if stopping:
            stopping()
            asyncio.get_running_loop().call_later(ANSWERED_WITHIN_S, setattr, server, "force_exit", True)
        await serving
        raise
