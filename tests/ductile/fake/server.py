"""HTTP server of the fake, with faults between an answer and its reader."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.kit.http_server import Call, Response, WireServer

STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Request:
    """headers: by lower-case name. body: empty without a Content-Length."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body or b"{}")


class Refused(Exception):
    """Carries the answer to a refused request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer = says(status, {"error": text})


def says(status: int, body: Any) -> Response:
    return Response(status, json.dumps(body).encode() + b"\n")


LOST = Response(delivery="reset")
UNAVAILABLE = says(503, {"error": "too many concurrent synchronous requests"})


@dataclass(slots=True)
class Faults:
    """Switches, read for every request. proxied: the answer to all requests by a proxy, while Ductile is away.
    strangers: answers to the next POSTs, with True if Ductile carries them out before."""

    proxied: Response | None = None
    strangers: list[tuple[Response, bool]] = field(default_factory=list)


def served(port: int, faults: Faults, answer: Callable[[Request], Response]) -> WireServer:
    def respond(call: Call) -> Response:
        parts = urlsplit(call.path)
        query = dict(parse_qsl(parts.query))
        request = Request(call.method, unquote(parts.path), query, call.headers, call.raw)
        if faults.proxied or call.method == "GET" or not faults.strangers:
            return faults.proxied or answer(request)
        stranger, passes = faults.strangers.pop(0)
        if passes:
            answer(request)
        return stranger

    return WireServer(respond, port=port)
