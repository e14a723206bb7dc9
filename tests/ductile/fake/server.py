"""The sockets of the fake: HTTP/1.1 in threads, and the faults that lie between an answer and its reader."""

import contextlib
import socket
import struct
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.ductile.fake.wire import Answer, Faults, Request

STEP_SECONDS = 0.02


class Server:
    """A listening socket and its connections; `close` drops them all."""

    def __init__(self, port: int, faults: Faults, *, answer: Callable[[Request], Answer]) -> None:
        self.faults, self.answer = faults, answer
        self.closing = threading.Event()
        self._server = _Listener(("127.0.0.1", port), lambda *arguments: _Connection(*arguments, owner=self))
        self.port: int = self._server.server_port
        serve = {"poll_interval": STEP_SECONDS}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs=serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Refuse connections from now on and end those that are open."""
        self.closing.set()
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
        """A reader that has gone is no error of the fake's; anything else shows as a failed connection and a trace."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, *arguments: Any, owner: Server) -> None:
        self._owner, self._faults = owner, owner.faults
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        request = self._request()
        if self._faults.proxied:
            return self._send(self._faults.proxied)
        if request.method == "GET" or not self._faults.strangers:
            return self._send(self._owner.answer(request))
        stranger, passes = self._faults.strangers.pop(0)
        if passes:
            self._owner.answer(request)
        return self._send(stranger) if stranger.status else self._reset()

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
        self.send_response(answer.status)
        if answer.content_type is not None:
            self.send_header("Content-Type", answer.content_type)
        for name, value in (answer.headers or {}).items():
            self.send_header(name, value)
        if answer.stream is not None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            return self._stream(answer)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        return None

    def _stream(self, answer: Answer) -> None:
        """A stream that is cut ends without the last chunk, as Ductile's write timeout leaves it."""
        self.close_connection = True
        frames = answer.stream() if answer.stream else iter(())
        for frame in frames:
            if frame:
                self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
