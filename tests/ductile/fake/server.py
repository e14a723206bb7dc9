"""HTTP server of the fake, with faults between an answer and its reader."""

import contextlib
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

STEP_SECONDS = 0.02
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


@dataclass(frozen=True, slots=True)
class Answer:
    """stream: frames after the head. Status 0 resets the connection instead."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Callable[[], Iterator[bytes]] | None = None


class Refused(Exception):
    """Carries the answer to a refused request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer = says(status, {"error": text})


def says(status: int, body: Any) -> Answer:
    return Answer(status, json.dumps(body).encode() + b"\n")


LOST = Answer(0)
UNAVAILABLE = says(503, {"error": "too many concurrent synchronous requests"})


@dataclass(slots=True)
class Faults:
    """Switches, read for every request. proxied: the answer to all requests by a proxy, while Ductile is away.
    strangers: answers to the next POSTs, with True if Ductile carries them out before."""

    proxied: Answer | None = None
    strangers: list[tuple[Answer, bool]] = field(default_factory=list)


class Server:
    """A listening socket and its connections."""

    def __init__(self, port: int, faults: Faults, *, answer: Callable[[Request], Answer]) -> None:
        self.faults, self.answer = faults, answer
        self._server = _Listener(("127.0.0.1", port), lambda *arguments: _Connection(*arguments, owner=self))
        self.port: int = self._server.server_port
        serve = {"poll_interval": STEP_SECONDS}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs=serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Refuses new connections and ends open ones."""
        self._server.shutdown()
        self._server.server_close()
        self._server.drop_connections()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
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
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores readers that have gone; other errors show as a failed connection and a trace."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, *arguments: Any, owner: Server) -> None:
        self._owner, self._faults = owner, owner.faults
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._send(self._faults.proxied or self._owner.answer(self._request()))

    def do_POST(self) -> None:
        request = self._request()
        if self._faults.proxied or not self._faults.strangers:
            return self._send(self._faults.proxied or self._owner.answer(request))
        stranger, passes = self._faults.strangers.pop(0)
        if passes:
            self._owner.answer(request)
        return self._send(stranger) if stranger.status else self._reset()

    def log_message(self, *_: object) -> None:
        pass

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        return Request(
            self.command,
            unquote(parts.path),
            dict(parse_qsl(parts.query)),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(int(self.headers.get("Content-Length", 0))),
        )

    def _send(self, answer: Answer) -> None:
        length = {"Transfer-Encoding": "chunked"} if answer.stream else {"Content-Length": str(len(answer.body))}
        self.send_response(answer.status)
        for name, value in {"Content-Type": answer.content_type, **answer.headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)
        if answer.stream:
            self.close_connection = True  # without the last chunk, as Ductile's write timeout leaves a stream
            for frame in answer.stream():
                self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
