"""Building blocks of fake model providers: a loopback server and a script of its answers.

A fake refuses what its provider refuses. It gives scripted answers in order, then those of its policy; responses go
out whole or with the failures of networks.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Generic, Literal, TypeVar

from agent_service.models.settings import ModelSettings, open_model
from agent_service.run.ports import ModelProvider

KEY = "sk-test-0123456789-secret"
"""The key that every fake wants to see."""

Body = dict[str, Any]
Reply = dict[str, Any] | str | Callable[[dict[str, Any]], Any]

Delivery = Literal["whole", "cut", "never", "stalls", "paced"]
"""`cut`: the connection ends in the middle of the body. `never`: nothing at all. `stalls`: half of the body, and then
nothing. `paced`: event by event, with PACE_S between them."""
PACE_S = 0.03
SSE = "text/event-stream"
PIECE = 16
"""Characters of a streamed piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request with lower-case header names; `body` is None unless it is a JSON object."""

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
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delivery: Delivery = "whole"


class Rejected(Exception):
    """An API error: HTTP status, the provider's names of its cause, and message."""

    def __init__(
        self, message: str, status: int = 400, kind: str = "invalid_request_error", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code


class Fake(ABC):
    """A provider's server, which listens until `close`. For one client only, because it has one script."""

    path = ""
    """Path of model calls."""
    request_id = ""
    """Header that identifies an answer."""
    kinds: ClassVar[Mapping[int, str]] = {}
    """The provider's error names by status."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.policy: Reply | None = None
        """Reply without a script."""
        self._script: deque[Callable[[Body], Response]] = deque()
        self._server = WireServer(self.called)
        self.base_url = self._server.base_url
        self.close = self._server.close

    @property
    def requests(self) -> list[Body]:
        """Bodies of all model calls, oldest first."""
        return [call.body for call in self.calls if call.path == self.path and call.body is not None]

    def answer(self, reply: Reply) -> None:
        """Scripts the next reply: an object as JSON, a text as it is, or the result of a callable for the request."""
        self._script.append(lambda body: self._said(body, reply))

    def send(self, response: Response) -> None:
        """Scripts exactly this answer."""
        self._script.append(lambda _: response)

    def script(self, respond: Callable[[Body], Response]) -> None:
        """Scripts the next answer as a function of the request body."""
        self._script.append(respond)

    def fail(
        self, status: int, code: str = "", headers: Mapping[str, str] | None = None, *, message: str = "as scripted"
    ) -> None:
        """Scripts an HTTP error. `code` is the provider's name of the cause."""
        error = Rejected(message, status, self.kinds.get(status, "api_error"), code or None)
        self._script.append(lambda _: self.error(error, headers or {}))

    @abstractmethod
    def accepted(self, call: Call) -> Body:
        """Returns the body of a valid call. Raises Rejected for any other."""

    @abstractmethod
    def reply(self, body: Body, text: str) -> Response:
        """A reply that says `text`."""

    @abstractmethod
    def told(self, error: Rejected) -> Body:
        """An error in the provider's form."""

    def respond(self, call: Call) -> Response:
        body = self.accepted(call)
        return self._script.popleft()(body) if self._script else self._said(body, self.policy)

    def json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        named = {self.request_id: f"req_{len(self.calls):04}", **(headers or {})}
        return Response(status=status, body=json.dumps(value).encode(), headers=named)

    def stream(self, events: Iterable[Body | str]) -> Response:
        """Server-sent events: those with a type are named after it, as at Anthropic; a text is sent as it is."""
        said = "".join(map(_event, events)).encode()
        return replace(self.json(None), body=said, content_type=SSE)

    def error(self, error: Rejected, headers: Mapping[str, str]) -> Response:
        return self.json(self.told(error), error.status, headers)

    def called(self, call: Call) -> Response:
        self.calls.append(call)
        try:
            return self.respond(call)
        except Rejected as rejected:
            return self.error(rejected, {})

    def _said(self, body: Body, reply: Reply | None) -> Response:
        said = reply(body) if callable(reply) else reply
        if said is None:
            raise Rejected("nothing is scripted: the test expects fewer calls")
        return self.reply(body, said if isinstance(said, str) else json.dumps(said))


def _event(event: Body | str) -> str:
    if isinstance(event, str):
        return f"data: {event}\n\n" if event == "[DONE]" else event
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n"


def in_pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


F = TypeVar("F", bound=Fake)


@dataclass(frozen=True, slots=True)
class Served(Generic[F]):
    """A model, made as the service makes it, and its server."""

    model: ModelProvider
    fake: F

    @property
    def requests(self) -> list[Body]:
        return self.fake.requests

    def answer(self, reply: Reply) -> None:
        self.fake.answer(reply)


@asynccontextmanager
async def served(fake: F, **settings: Any) -> AsyncIterator[Served[F]]:
    """`fake`, and the model that `settings` choose."""
    try:
        async with open_model(ModelSettings.model_validate(settings)) as model:
            yield Served(model, fake)
    finally:
        fake.close()


class WireServer:
    """Answers every call by `respond`, in its own threads, until closed."""

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
    """One connection with one or more calls."""

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
        if response.delivery == "paced":
            for event in response.body.split(b"\n\n"):
                self.wfile.write(event + b"\n\n" if event else b"")
                if self._wire.closing.wait(PACE_S):
                    break
            return
        half = response.delivery in ("cut", "stalls")
        self.wfile.write(response.body[: len(response.body) // 2] if half else response.body)
        self.close_connection = half
        if response.delivery == "stalls":
            self.wfile.flush()
            self._wire.closing.wait()
