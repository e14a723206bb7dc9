"""What is checked of every request to the ingress before any route: path, Host, and that there is room for it.

A browser that was tricked into another name for this address is turned away. Probes may come by any name, at any time.
"""

from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from groundwork.http.incoming import PROBES, has_a_path, host


class Door:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str], *, max_in_hand: int) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)
        self._max_in_hand = max_in_hand
        self._in_hand = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif not has_a_path(scope):
            await _refuse(404, "there is nothing at this path")(scope, receive, send)
        elif host(scope) not in self._allowed:
            await _refuse(421, "this service does not answer to this Host: add it to `allowed_hosts`")(
                scope, receive, send
            )
        elif self._in_hand >= self._max_in_hand:
            busy = _refuse(503, "too many deliveries at a time: send it again", {"Retry-After": "1"})
            await busy(scope, receive, send)
        else:
            await self._with_room(scope, receive, send)

    async def _with_room(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._in_hand += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_hand -= 1


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status, headers=headers)
