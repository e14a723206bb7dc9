"""A server on loopback for fakes of model providers: calls come in as JSON, and responses go out as they are scripted,
whole or in the ways in which networks fail."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Delivery = Literal["whole", "cut", "slow", "never"]
"""`cut`: the connection ends in the middle of the body. `slow`: a byte per second. `never`: nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request. `headers` have lower-case names; `body` is None where it is no JSON object."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any] | None:
        try:
            body = json.loads(self.raw)
        except ValueError:
            return None
        return body if isinstance(body, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What goes out."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delivery: Delivery = "whole"


class WireServer:
    """Answers every call with what `respond` makes of it, in threads of its own, until it is closed."""

    def __init__(self, respond: Callable[[Call], Response]) -> None:
        self.respond = respond
        self.closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that left is no news
        self.base_url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection, which may bring many calls."""

    protocol_version = "HTTP/1.1"

    def __init__(self, wire: WireServer, *connection: Any) -> None:
        self._wire = wire
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def log_message(self, *_: Any) -> None: ...

    def _answer(self, raw: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        response = self._wire.respond(Call(method=self.command, path=self.path, headers=headers, raw=raw))
        if response.delivery == "never":
            self._wire.closing.wait()
            self.close_connection = True
            return
        self.send_response(response.status)
        self.send_header("content-type", response.content_type)
        self.send_header("content-length", str(len(response.body)))
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._deliver(response)

    def _deliver(self, response: Response) -> None:
        if response.delivery == "slow":
            self._drip(response.body)
            return
        end = len(response.body) // 2 if response.delivery == "cut" else len(response.body)
        self.wfile.write(response.body[:end])
        self.close_connection = response.delivery == "cut"

    def _drip(self, body: bytes) -> None:
        for at in range(len(body)):
            if self._wire.closing.wait(1.0):
                break
            self.wfile.write(body[at : at + 1])
        self.close_connection = True
