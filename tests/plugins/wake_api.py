"""A small fake of the agent's wake API that also answers as no agent should. The first part of the path says how."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEP_S = 0.05
LINGERS_S = 20.0
RUN = "01JD0000000000000000000000"
ACCEPTED = {"accepted": True, "run_id": RUN, "wake_id": "as-sent", "status_url": f"/v1/runs/{RUN}"}


def refused(code: str, message: str, **more: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, **more}}).encode()


ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "": (202, {}, json.dumps(ACCEPTED).encode()),
    "known": (200, {}, json.dumps(ACCEPTED).encode()),
    "400": (400, {}, refused("not_json", "the body is no JSON")),
    "401": (401, {"WWW-Authenticate": "Bearer"}, refused("unauthorized", "send a token of this service")),
    "403": (403, {}, refused("forbidden", "token dashboards has no scope `wake`")),
    "404": (404, {"Content-Type": "text/html"}, b"<h1>Not here</h1>"),
    "409": (409, {}, refused("wake_id_taken", "another order has this wake_id", field="wake_id", run_id=RUN)),
    "413": (413, {"Connection": "close"}, refused("too_large", "the body has more than 262144 bytes")),
    "421": (421, {}, refused("wrong_host", "this service does not answer to this Host")),
    "422": (422, {}, refused("invalid", "constraints.max_steps: must be at least 1", field="constraints.max_steps")),
    "408": (408, {}, refused("too_slow", "the body came too slowly")),
    "429": (429, {"Retry-After": "7"}, refused("busy", "too many")),
    "500": (500, {}, b"broken"),
    "502": (502, {}, b"<h1>Bad gateway</h1>"),
    "503": (503, {"Retry-After": "30"}, refused("try_again", "not done, and nothing was stored")),
    "odd-patience": (503, {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, b""),
    "moved": (307, {"Location": "/known/v1/wake"}, b""),
    "elsewhere": (302, {"Location": "http://192.0.2.1/v1/wake"}, b""),
    "not-json": (202, {}, b"<p>welcome"),
    "a-list": (202, {}, b"[true]"),
    "deep": (202, {}, b"[" * 60_000),
    "not-accepted": (202, {}, json.dumps(ACCEPTED | {"accepted": False}).encode()),
    "nearly-accepted": (202, {}, json.dumps(ACCEPTED | {"accepted": "true"}).encode()),
    "no-run": (202, {}, b'{"accepted": true}'),
    "strange-run": (202, {}, json.dumps(ACCEPTED | {"run_id": "../../etc/passwd"}).encode()),
    "huge": (202, {}, json.dumps(ACCEPTED | {"padding": "x" * 5_000_000}).encode()),
    "cut": (202, {"Content-Length": "500"}, json.dumps(ACCEPTED).encode()[:-20]),
    "terminal": (422, {}, refused("invalid", "goal:\n\x1b[2J\u202egnp.exe\u2028" + "long " * 1000)),
}
"""Behaviours that are one answer; others: silent, drip, hang-up, no-http, second-time, tells-token,
runs-as-token."""


@dataclass(frozen=True, slots=True)
class Wake:
    """One request that was received."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def order(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass(frozen=True, slots=True)
class WakeApi:
    url: str
    received: list[Wake] = field(default_factory=list)

    def at(self, behaviour: str) -> str:
        return f"{self.url}/{behaviour}"


@contextmanager
def serving() -> Iterator[WakeApi]:
    """The fake on a free port of the loopback interface."""
    received: list[Wake] = []

    class Handler(_Handler):
        heard = received

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": STEP_S})
        thread.start()
        try:
            yield WakeApi(f"http://127.0.0.1:{server.server_port}", received)
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    heard: list[Wake]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.heard.append(Wake(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        behaviour = self.path.strip("/").removesuffix("v1/wake").strip("/")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        match behaviour:
            case "silent" | "drip":
                self._linger(drip=behaviour == "drip")
            case "hang-up":
                self.close_connection = True
            case "no-http":
                self.wfile.write(b"220 mail.example.org ready\r\n")
            case "second-time":
                self._answer(*ANSWERS["503" if len(self.heard) == 1 else ""])
            case "tells-token":
                self._answer(422, {}, refused("invalid", f"what is {token}?", run_id=token))
            case "runs-as-token":
                self._answer(202, {}, json.dumps(ACCEPTED | {"run_id": token}).encode())
            case _:
                self._answer(*ANSWERS.get(behaviour, ANSWERS["404"]))

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def _linger(self, *, drip: bool) -> None:
        """Nothing, or a byte now and then, until the client has gone."""
        if drip:
            self.send_response(202)
            self.end_headers()
        self.connection.settimeout(STEP_S)
        for _ in range(int(LINGERS_S / STEP_S)):
            try:
                if not self.connection.recv(1):
                    break
            except TimeoutError:
                if drip:
                    self.wfile.write(b" ")

    def log_message(self, *_: object) -> None:
        pass
