"""The socket that a service listens on: had before the server is loaded, so that callers wait instead of failing."""

import contextlib
import socket
from collections.abc import AsyncIterator

from groundwork.service.errors import Misconfigured
from groundwork.service.store_folder import once_free


@contextlib.asynccontextmanager
async def listening(host: str, port: int, *, who: str, within_s: float = 0.0) -> AsyncIterator[socket.socket]:
    """A listening socket; `within_s`: how long to wait for another that still has it. Raises Misconfigured: `who` is
    asked whether it has it, as in `another agent`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def listen() -> socket.socket:
        return socket.create_server((host, port), family=family, backlog=1024)

    try:
        listener = await once_free(listen, within_s=within_s)
    except OSError as error:
        where = f"{host}:{port}"
        raise Misconfigured(f"cannot listen on {where} ({error.strerror}): is another {who} running there?") from error
    with listener:
        yield listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
