"""HTTP/1.1 as the clients of both services use it: bodies with a length, and streams."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.ductile.fake.server import STREAM
from tests.ductile.fake.server import Request as Request
from tests.sim.machines.network import Connection

CRLF = "\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """`kind` "stream" leaves the connection open for later data."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"

    @classmethod
    def json(cls, status: int, value: Any) -> "Answer":
        return cls(status, json.dumps(value).encode())


Handler = Callable[[Request, "Exchange"], Answer | None]
"""Returns None to never answer."""


@dataclass(eq=False)
class Exchange:
    """Connection of a client."""

    connection: Connection
    handle: Handler
    left: Callable[["Exchange"], None]
    gone: bool = False
    _buffer: bytearray = field(default_factory=bytearray)

    def received(self, data: bytes) -> None:
        self._buffer += data
        while request := self._read():
            if answer := self.handle(request, self):
                self.answer(answer)

    def answer(self, answer: Answer) -> None:
        self.connection.send(self._encoded(answer))

    def closed(self) -> None:
        self.gone = True
        self.left(self)

    def send_event(self, name: str, told: dict[str, Any]) -> None:
        chunk = f"event: {name}\ndata: {json.dumps(told)}\n\n".encode()
        self.connection.send(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")

    def _read(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = bytes(self._buffer[:end]).decode().split(CRLF)
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", "0"))
        if len(self._buffer) < end + 4 + size:
            return None
        body = bytes(self._buffer[end + 4 : end + 4 + size])
        del self._buffer[: end + 4 + size]
        method, target, _ = first.split(" ")
        url = urlsplit(target)
        return Request(method, url.path, dict(parse_qsl(url.query)), headers, body)

    def _encoded(self, answer: Answer) -> bytes:
        length = "Transfer-Encoding: chunked" if answer.kind == STREAM else f"Content-Length: {len(answer.body)}"
        head = f"HTTP/1.1 {answer.status} X\r\nContent-Type: {answer.kind}\r\n{length}\r\n\r\n"
        return head.encode() + answer.body


class HttpServer:
    """`up` is False to refuse connections. `handle` answers each request."""

    def __init__(self, handle: Handler) -> None:
        self.up = True
        self.open: list[Exchange] = []
        self._handle = handle

    def accept(self, connection: Connection) -> Exchange:
        exchange = Exchange(connection, self._handle, self._left)
        self.open.append(exchange)
        return exchange

    def _left(self, exchange: Exchange) -> None:
        if exchange in self.open:
            self.open.remove(exchange)
