"""Model behind OpenAI's API. It counts paid calls and may be slow, fail, or be away."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.ductile.fake.server import Request, says
from tests.kit.http_server import Response
from tests.sim.machines.time import Scheduler
from tests.sim.servers.http_server import Exchange, HttpServer

Json = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    """Text of a prompt, and whether its reply is a decision or a verification."""

    system: str
    user: str
    shape: str


EVENTS = "text/event-stream; charset=utf-8"
Mind = Callable[[Prompt], Json]


@dataclass(eq=False)
class ModelServer:
    scheduler: Scheduler
    mind: Mind
    on_paid: Callable[[Prompt], None] = lambda _: None
    """Gets every answered prompt; each costs."""
    on_lost: Callable[[], None] = lambda: None
    """Called for every paid reply that a fault loses."""
    answered: int = 0
    takes_s: float = 0.2

    def __post_init__(self) -> None:
        self.server = HttpServer(self._answer)

    def _answer(self, request: Request, exchange: Exchange) -> Response | None:
        if not request.path.endswith("/chat/completions"):
            return says(404, {"error": {"message": "not here"}})
        if self.scheduler.chance("model unavailable"):
            return says(503, {"error": {"message": "overloaded", "type": "server_error"}})
        self.scheduler.after(self.takes_s, lambda: self._reply(request.json(), exchange))
        return None

    def _reply(self, asked: Json, exchange: Exchange) -> None:
        if exchange.gone:
            return
        prompt = _prompt(asked)
        self.answered += 1
        self.on_paid(prompt)
        if self.scheduler.chance("reply lost"):
            self.on_lost()
            exchange.connection.cut()
            return
        garbled = self.scheduler.chance("reply garbled")
        text = f"well, {self.answered}: let me see" if garbled else json.dumps(self.mind(prompt))
        chunk = {
            "id": f"chatcmpl-{self.answered}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": asked["model"],
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 2000, "completion_tokens": 100},
        }
        exchange.answer(Response(200, f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode(), EVENTS))


def _prompt(asked: Json) -> Prompt:
    said = {"system": "", "user": ""}
    for message in asked["messages"]:
        content = message["content"]
        text = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
        said["user" if message["role"] == "user" else "system"] += text
    parts = asked.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("properties", {})
    shape = "verification" if "holds" in parts else "decision" if parts else ""
    return Prompt(said["system"], said["user"], shape)
