"""How long requests over HTTP take, by route: ASGI middleware around an application, but for streams and probes."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwork.http.bodies import PROBES
from groundwork.telemetry.metrics import OTHER, Histogram, Instruments

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
LEFT_OUT = PROBES | {"/metrics"}
_STREAM = b"text/event-stream"


def request_durations(instruments: Instruments) -> Histogram:
    return instruments.histogram(
        "http.server.request.duration",
        "Requests over HTTP, without probes and streams",
        attributes=("http.request.method", "http.route", "http.response.status_code"),
    )


class Measured:
    def __init__(self, app: ASGIApp, durations: Histogram) -> None:
        self._app = app
        self._durations = durations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in LEFT_OUT:
            await self._app(scope, receive, send)
            return
        began, answer = time.perf_counter(), _Answer(send)
        try:
            await self._app(scope, receive, answer)
        finally:
            if not answer.streams:
                method = scope["method"] if scope["method"] in METHODS else OTHER
                route = str(getattr(scope.get("route"), "path", ""))
                self._durations.record(time.perf_counter() - began, method, route, answer.status)


class _Answer:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = "500"
        self.streams = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = str(message["status"])
            self.streams = any(
                name == b"content-type" and value.startswith(_STREAM) for name, value in message["headers"]
            )
        await self._send(message)
