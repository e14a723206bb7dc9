"""An HTTP server for one test, in a thread of its own."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STEP_S = 0.05
LINGERS_S = 20.0


@dataclass(frozen=True, slots=True)
class Heard:
    """One request that was received. headers: by lower-case name."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, Mapping[str, str], bytes]
SILENT: Answer = (0, {}, b"")
DRIP: Answer = (1, {}, b" ")
"""Nothing, or a byte now and then, until the client has gone."""
HANG_UP: Answer = (2, {}, b"")
NO_HTTP: Answer = (2, {}, b"220 mail.example.org ready\r\n")


class Site(ThreadingHTTPServer):
    """`heard`: what was asked so far."""

    def __init__(self, answer: Callable[[Heard], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.heard = answer, list[Heard]()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.heard.append(heard := Heard(self.command, self.path, headers, body))
        status, more, content = self.server.answer(heard)
        if status <= 1:
            return self._linger(content)
        if status > 2:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | dict(more)).items():
                self.send_header(name, value)
            self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(content)
        return None

    do_POST = do_GET  # noqa: N815 - as the library calls it

    def _linger(self, dripped: bytes) -> None:
        if dripped:
            self.send_response(200)
            self.end_headers()
        self.connection.settimeout(STEP_S)
        for _ in range(int(LINGERS_S / STEP_S)):
            try:
                if not self.connection.recv(1):
                    break
            except TimeoutError:
                self.wfile.write(dripped)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answer: Callable[[Heard], Answer]) -> Iterator[Site]:
    """On a free port of the loopback interface."""
    with Site(answer) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": STEP_S})
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()
