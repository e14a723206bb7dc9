"""uvicorn, as it serves the HTTP API: bounded, without signal handlers and logs of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from groundwork.http.protocol import BoundedProtocol

MOST_CONNECTIONS = 1000


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the root has them. Inherits because uvicorn offers no setting for it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: FastAPI) -> uvicorn.Server:
    """To be run by `serve(sockets=[…])`."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=BoundedProtocol,
        lifespan="off",
        log_config=None,
        log_level="warning",  # that it has started is said by the root
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=3,
    )
    return _Server(config)
