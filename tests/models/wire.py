"""Building blocks of fake model providers: a script of a server's answers.

A fake refuses what its provider refuses. It gives scripted answers in order, then those of its policy.
"""

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from agent_service.models.settings import ModelSettings, open_model
from agent_service.run.ports import ModelProvider
from tests.kit.http_server import Call, Response, WireServer

KEY = "sk-test-0123456789-secret"

Body = dict[str, Any]
Reply = dict[str, Any] | str | Callable[[dict[str, Any]], Any]

SSE = "text/event-stream"
PIECE = 16
"""Characters of a streamed piece."""


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
        self.base_url = self._server.url
        self.close = self._server.close

    @property
    def requests(self) -> list[Body]:
        return [call.body for call in self.calls if call.path == self.path and call.body is not None]

    def answer(self, reply: Reply) -> None:
        """Scripts the next reply: an object as JSON, a text as it is, or the result of a callable for the request."""
        self._script.append(lambda body: self._said(body, reply))

    def send(self, response: Response) -> None:
        self._script.append(lambda _: response)

    def script(self, respond: Callable[[Body], Response]) -> None:
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
    model: ModelProvider
    fake: F


@asynccontextmanager
async def served(fake: F, **settings: Any) -> AsyncIterator[Served[F]]:
    try:
        async with open_model(ModelSettings.model_validate(settings)) as model:
            yield Served(model, fake)
    finally:
        fake.close()
