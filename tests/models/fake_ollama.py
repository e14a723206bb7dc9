"""A server that behaves as Ollama does where it speaks OpenAI's API.

It asks for no key, ignores what it does not know and the schema of the reply with it, knows no `max_completion_tokens`,
reports no cache, and drops without a word what its context has no room for.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agent_service.models.opening import open_model
from agent_service.models.settings import ModelSettings
from tests.models.anthropic_tokens import tokens
from tests.models.fake_openai import FakeOpenAI, ServedOpenAI
from tests.models.openai_cache import rendered
from tests.models.openai_rules import Body, Rejected
from tests.models.wire import Call

MODEL = "qwen3:8b"


@dataclass(frozen=True, slots=True)
class OllamaApi:
    """Fills Api. `context` is in tokens."""

    context: int

    def accepted(self, call: Call) -> Body:
        body = call.body
        if body is None:
            raise Rejected("invalid character 'x' looking for beginning of value")
        if body.get("model") != MODEL:
            why = f'model "{body.get("model")}" not found, try pulling it first'
            raise Rejected(why, 404, kind="not_found_error")
        return body

    def said(self, body: Body, reply: dict[str, Any]) -> str:
        del body  # and the schema with it
        return json.dumps(reply, indent=2)

    def bounds(self, body: Body) -> tuple[int | None, int]:
        return body.get("max_tokens"), 0

    def prompt_usage(self, body: Body) -> dict[str, Any]:
        return {"prompt_tokens": min(self.context, sum(tokens(text) for text, _ in rendered(body)[1:]))}


@asynccontextmanager
async def serve(*, context: int = 32_768, **settings: Any) -> AsyncIterator[ServedOpenAI]:
    """The adapter, made as the service makes it, and its server. `settings` are those of `ModelSettings`."""
    fake = FakeOpenAI(OllamaApi(context))
    free = {"input": 0, "output": 0}
    defaults = {"provider": "openai", "model": MODEL, "base_url": fake.base_url, "price": free}
    try:
        async with open_model(ModelSettings.model_validate({**defaults, **settings})) as model:
            yield ServedOpenAI(model, fake)
    finally:
        fake.close()
