"""What is checked of every request to the ingress before any route: path and Host.

A browser that was tricked into another name for this address is turned away. Probes may come by any name, at any time.
"""

from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from groundwork.http.requests import PROBES, has_a_path, host


class Door:
    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif not has_a_path(scope):
            await _refuse(404, "there is nothing at this path")(scope, receive, send)
        elif host(scope) not in self._allowed:
            await _refuse(421, "this service does not answer to this Host: add it to `allowed_hosts`")(
                scope, receive, send
            )
        else:
            await self._app(scope, receive, send)


def _refuse(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)
