"""HTTP/1.1 as the clients of both services use it: bodies with a length, and streams."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.ductile.fake.server import STREAM, Request
from tests.kit.http_server import Response
from tests.sim.machines.network import Connection

CRLF = "\r\n"


Handler = Callable[[Request, "Exchange"], Response | None]
"""Returns None to answer later or never. An answer of the type STREAM leaves the connection open for later data."""


def taken(buffer: bytearray) -> tuple[str, Mapping[str, str], bytes] | None:
    """Takes the first whole message from the buffer: its first line, its headers by lower-case name, and its body."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = bytes(buffer[:end]).decode().split(CRLF)
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    size = int(headers.get("content-length", "0"))
    if len(buffer) < end + 4 + size:
        return None
    body = bytes(buffer[end + 4 : end + 4 + size])
    del buffer[: end + 4 + size]
    return first, headers, body


@dataclass(eq=False)
class Exchange:
    connection: Connection
    handle: Handler
    left: Callable[["Exchange"], None]
    gone: bool = False
    _buffer: bytearray = field(default_factory=bytearray)

    def received(self, data: bytes) -> None:
        self._buffer += data
        while message := taken(self._buffer):
            first, headers, body = message
            method, target, _ = first.split(" ")
            url = urlsplit(target)
            if answer := self.handle(Request(method, url.path, dict(parse_qsl(url.query)), headers, body), self):
                self.answer(answer)

    def answer(self, answer: Response) -> None:
        is_stream = answer.content_type == STREAM
        length = "Transfer-Encoding: chunked" if is_stream else f"Content-Length: {len(answer.body)}"
        head = f"HTTP/1.1 {answer.status} X\r\nContent-Type: {answer.content_type}\r\n{length}\r\n\r\n"
        self.connection.send(head.encode() + answer.body)

    def closed(self) -> None:
        self.gone = True
        self.left(self)

    def send_event(self, name: str, told: dict[str, Any]) -> None:
        chunk = f"event: {name}\ndata: {json.dumps(told)}\n\n".encode()
        self.connection.send(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")


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
