"""The worst possible model, behind OpenAI's API: it obeys the last order in its prompt, from any author.

An order is `OBEY:` and the base64 of the reply, anywhere in the prompt: in a goal, a tool's result or a file. Without
an order it claims to be done.
"""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.kit.http_server import Call, Response, WireServer

NAME = "obedient"
KEY = "sk-the-key-of-the-obedient-model"
ITEMS = ("one", "two", "three")
_ORDER = re.compile(r"OBEY:([A-Za-z0-9_-]+=*):")


@dataclass(slots=True)
class Obedient:
    """Records what it was asked."""

    url: str = ""
    told: list[str] = field(default_factory=list)

    def reply_to(self, prompt: str) -> str:
        self.told.append(prompt)
        orders = _ORDER.findall(prompt)
        return base64.urlsafe_b64decode(orders[-1]).decode() if orders else json.dumps({"reflection": done()})


def order(reply: Any) -> str:
    """Returns text that makes the model reply `reply`: text as it is, anything else as JSON."""
    text = reply if isinstance(reply, str) else json.dumps(reply)
    return f"OBEY:{base64.urlsafe_b64encode(text.encode()).decode()}:"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that frames the goal, continues, and plans this call (`tool.command`)."""
    return calls((name, arguments))


def calls(*every: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    items = [{"text": text, "proof": "step", "tool": ""} for text in ITEMS]
    actions = [{"call": name, "arguments_json": json.dumps(arguments)} for name, arguments in every]
    return {
        "framing": {"goal_statement": "Do it.", "definition_of_done": items},
        "reflection": {"summary": "On it goes.", "verdict": "continue"},
        "plan": {"rationale": "I was told to.", "actions": actions},
    }


def done(evidence: str = "step:1", quote: str = "") -> dict[str, Any]:
    met = [{"item": f"d{n + 1}", "evidence": evidence, "quote": quote} for n in range(len(ITEMS))]
    return {"summary": "Done.", "verdict": "done", "outcome": "Done.", "met": met}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


@contextmanager
def obedient() -> Iterator[Obedient]:
    model = Obedient()

    def respond(call: Call) -> Response:
        if call.body is None:
            found = {"id": NAME, "object": "model", "created": 1, "owned_by": "tests", "data": []}
            return Response(body=json.dumps(found).encode())
        reply = model.reply_to("\n".join(_text(message["content"]) for message in call.body["messages"]))
        choice = {"index": 0, "delta": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        said = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": NAME, "choices": [choice]}
        return Response(body=f"data: {json.dumps(said | {'usage': usage})}\n\ndata: [DONE]\n\n".encode())

    with WireServer(respond) as server:
        model.url = server.url
        yield model
