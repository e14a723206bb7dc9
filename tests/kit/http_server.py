"""An HTTP server on a free port of the loopback interface. Responses go out whole or with the failures of networks."""

import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

from schemas.bounded import json_object

Delivery = Literal["whole", "cut", "never", "stalls", "paced", "drips", "raw", "reset"]
"""`cut`: the connection ends in the middle of the body. `never`: nothing at all. `stalls`: half of the body, and then
nothing. `paced`: event by event, with PACE_S between them. `drips`: the body again and again, until the client has
gone. `raw`: the body alone, without a head. `reset`: nothing, and the connection is reset."""
PACE_S = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request with lower-case header names; `body` is None unless it is a JSON object."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any] | None:
        return json_object(self.raw)


@dataclass(frozen=True, slots=True)
class Response:
    """`stream`: chunks after the head, without the last one, as a server that is stopped leaves them."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delivery: Delivery = "whole"
    stream: Callable[[], Iterator[bytes]] | None = None


Answer = Response | tuple[int, Mapping[str, str], bytes]
"""A response, or only its status, headers and body."""
SILENT, DRIP = Response(delivery="never"), Response(body=b" ", delivery="drips")
HANG_UP, NO_HTTP = Response(delivery="raw"), Response(body=b"220 mail.example.org ready\r\n", delivery="raw")


class WireServer:
    """Answers every call by `respond`, in its own threads, until closed. `calls`: those that were answered so far."""

    def __init__(self, respond: Callable[[Call], Answer], tls: ssl.SSLContext | None = None, *, port: int = 0) -> None:
        self.respond = respond
        self.calls: list[Call] = []
        self.closing = threading.Event()
        self._http = _Listener(("127.0.0.1", port), partial(_Handler, self))
        if tls:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._http.drop_connections()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news; other errors show as a failed connection and a trace."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, wire: WireServer, *connection: Any) -> None:
        self._wire = wire
        super().__init__(*connection)

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        raw = self.rfile.read(int(headers.get("content-length") or 0))
        self._wire.calls.append(call := Call(method=self.command, path=self.path, headers=headers, raw=raw))
        said = self._wire.respond(call)
        response = said if isinstance(said, Response) else Response(status=said[0], headers=said[1], body=said[2])
        self.close_connection = bool(response.stream) or response.delivery not in ("whole", "paced")
        if response.delivery == "never":
            self._wire.closing.wait()
            return
        if response.delivery == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        if response.delivery != "raw":
            self._head(response)
        with suppress(ConnectionError):
            self._deliver(response)

    do_POST = do_GET  # noqa: N815 - as the library calls it

    def log_message(self, *_: Any) -> None: ...

    def _head(self, response: Response) -> None:
        length = {"transfer-encoding": "chunked"} if response.stream else {"content-length": str(len(response.body))}
        length = {} if response.delivery == "drips" else length
        given = {name.lower(): value for name, value in response.headers.items()}
        self.close_connection |= "content-length" in given
        self.send_response(response.status)
        for name, value in ({"content-type": response.content_type} | length | given).items():
            self.send_header(name, value)
        self.end_headers()

    def _deliver(self, response: Response) -> None:
        if response.delivery == "paced":
            for event in response.body.split(b"\n\n"):
                self.wfile.write(event + b"\n\n" if event else b"")
                if self._wire.closing.wait(PACE_S):
                    break
            return
        half = response.delivery in ("cut", "stalls")
        self.wfile.write(response.body[: len(response.body) // 2] if half else response.body)
        for chunk in response.stream() if response.stream else ():
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if response.delivery == "stalls":
            self.wfile.flush()
            self._wire.closing.wait()
        while response.delivery == "drips" and not self._wire.closing.wait(PACE_S):
            self.wfile.write(response.body)
