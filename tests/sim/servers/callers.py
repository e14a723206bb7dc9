"""Outside clients, which repeat a request until it is answered, and receivers of endings."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.ductile.fake.server import Request, says
from tests.kit.http_server import Response
from tests.sim.machines.network import Network
from tests.sim.machines.time import Process, Scheduler
from tests.sim.servers.http_server import CRLF, Exchange, HttpServer, taken

Json = dict[str, Any]
AGENT_DOOR, INGRESS_DOOR, PROBES_DOOR = "127.0.0.1", "127.0.0.2", "127.0.0.3"
"""Listening addresses of the agent's API, the gateway's webhooks and its probes."""
RECEIVER = "127.0.0.9"
PEER, PEER_SECRET = "ductile-sim", "the secret of the peer"
INGEST = "/ingest/ductile"
HOOK_KEY = b"a signing key for tests only!"
HOOK_SECRET = "whsec_" + base64.b64encode(HOOK_KEY).decode()
AGAIN_S = 0.4
"""Seconds until a refused caller retries."""


@dataclass(frozen=True, kw_only=True)
class Post:
    """A request, repeated until it gets one of the wanted answers."""

    at_s: float
    path: str
    body: Json | None = None
    """None makes it a GET."""
    door: str = AGENT_DOOR
    signs: Callable[[bytes, int], Mapping[str, str]] = lambda *_: {}
    """Returns the signature headers of a body at this Unix time."""
    wanted: Callable[[int, Any], bool] = lambda status, _: status in (200, 202)


def by_standard(body: bytes, now: int) -> Mapping[str, str]:
    """Signs as Standard Webhooks do."""
    name = hashlib.sha256(body).hexdigest()[:16]
    told = f"{name}.{now}.".encode() + body
    signature = base64.b64encode(hmac.new(HOOK_KEY, told, hashlib.sha256).digest()).decode()
    return {"webhook-id": name, "webhook-timestamp": str(now), "webhook-signature": f"v1,{signature}"}


def by_ductile(body: bytes, now: int) -> Mapping[str, str]:
    """Signs as the relay of a Ductile does."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    signature = hmac.new(PEER_SECRET.encode(), f"POST\n{INGEST}\n{at}\n".encode() + body, hashlib.sha256).hexdigest()
    told = {"peer": PEER, "key-id": "v1", "timestamp": at, "signature": signature}
    return {f"x-ductile-{name}": value for name, value in told.items()}


@dataclass(eq=False)
class Attempt:
    answered: Callable[[int, Any], None]
    broken: Callable[[], None]
    _buffer: bytearray = field(default_factory=bytearray)
    _over: bool = False

    def received(self, data: bytes) -> None:
        self._buffer += data
        if not self._over and (message := taken(self._buffer)):
            self._over = True
            first, _, body = message
            self.answered(int(first.split()[1]), json.loads(body) if body else None)

    def closed(self) -> None:
        if not self._over:
            self._over = True
            self.broken()


class Callers:
    """`live` finds the process that listens at an address."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        live: Callable[[str], Process | None],
        *,
        on_sent: Callable[[Post], None],
        on_answer: Callable[[Post, Any], None],
    ) -> None:
        self.waiting = 0
        """Number of requests without a wanted answer."""
        self._on_sent, self._on_answer = on_sent, on_answer
        self._scheduler = scheduler
        self._network = network
        self._live = live

    def post(self, post: Post) -> None:
        self.waiting += 1
        self._scheduler.after(post.at_s, lambda: self._try(post))

    def _try(self, post: Post) -> None:
        process = self._live(post.door)
        again = self._later(post)
        if process is None:
            again()
            return

        def answered(status: int, told: Any) -> None:
            if post.wanted(status, told):
                self.waiting -= 1
                self._on_answer(post, told)
            else:
                again()

        connection = self._network.call(process, post.door, Attempt(answered, again))
        self._on_sent(post)
        connection.send(self._request(post))

    def _later(self, post: Post) -> Callable[[], None]:
        return lambda: self._scheduler.after(AGAIN_S, lambda: self._try(post))

    def _request(self, post: Post) -> bytes:
        body = b"" if post.body is None else json.dumps(post.body).encode()
        headers = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body))}
        headers |= post.signs(body, int(self._scheduler.wall().timestamp()))
        lines = [f"{'GET' if post.body is None else 'POST'} {post.path} HTTP/1.1"]
        return CRLF.join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode() + body


class Receiver:
    """Receiver of endings, which fails the first try and accepts only signed ones."""

    def __init__(self, on_received: Callable[[Json], None]) -> None:
        self._on_received = on_received
        self.server = HttpServer(self._answer)
        self._tries = 0

    def _answer(self, request: Request, _: Exchange) -> Response:
        self._tries += 1
        if self._tries == 1:
            return says(503, {"error": "not now"})
        about = [request.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")]
        mac = hmac.new(HOOK_KEY, f"{about[0]}.{about[1]}.".encode() + request.body, hashlib.sha256).digest()
        if f"v1,{base64.b64encode(mac).decode()}" not in about[2].split():
            return says(401, {"error": "not signed"})
        self._on_received(request.json())
        return says(200, {})
