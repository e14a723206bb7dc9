"""Requests and answers of the fake, with faults between an answer and its reader."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.kit.http_server import Call, Response

STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Request:
    """headers: by lower-case name. body: empty without a Content-Length."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, call: Call) -> Self:
        parts = urlsplit(call.path)
        return cls(call.method, unquote(parts.path), dict(parse_qsl(parts.query)), call.headers, call.raw)

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
