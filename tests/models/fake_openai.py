"""Servers that speak OpenAI's chat completions, and OpenAI's own, as far as an adapter depends on them.

OpenAI's refuses what the API refuses, keeps replies to their schema, thinks before them, and simulates the cache of
prompts. What a server is told to say it says in that order, and stops where the reply may not be longer.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import jsonschema_rs
import openai
from pydantic import SecretStr

from agent_service.models import openai_model
from agent_service.models.call import LanguageModel
from agent_service.models.prices import Prices
from agent_service.models.settings import ModelSettings
from agent_service.ports import Model
from tests.models import openai_rules
from tests.models.anthropic_tokens import tokens
from tests.models.model_house import KEY, Reply
from tests.models.openai_cache import PromptCache, rendered
from tests.models.openai_rules import MODELS, Body, Rejected
from tests.models.wire import Call, Response, WireServer

PATH = "/v1/chat/completions"
THOUGHT = 64
"""Tokens that a reasoning model thinks before each reply."""
KINDS = {402: "insufficient_quota", 429: "requests", 500: "server_error", 503: "server_error"}
Scripted = Callable[[Body], Response]


class Api(Protocol):
    """How one kind of server takes a call, and what it counts."""

    def accepted(self, call: Call) -> Body:
        """The call's body. Raises Rejected."""

    def said(self, body: Body, reply: dict[str, Any]) -> str:
        """An object as the model would say it."""

    def bounds(self, body: Body) -> tuple[int | None, int]:
        """The most tokens of the reply, and how many of them are spent on thinking."""

    def prompt_usage(self, body: Body) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class OpenAIApi:
    """Fills Api."""

    key: str = KEY
    cache: PromptCache = field(default_factory=PromptCache)

    def accepted(self, call: Call) -> Body:
        if call.headers.get("authorization") != f"Bearer {self.key}":
            told = call.headers.get("authorization", "")
            raise Rejected(f"Incorrect API key provided: {told}.", 401, code="invalid_api_key")
        if call.body is None:
            raise Rejected("We could not parse the JSON body of your request.")
        openai_rules.check(call.body)
        window, asked = MODELS[call.body["model"]].window, sum(tokens(text) for text, _ in rendered(call.body))
        if asked > window:
            why = f"This model's maximum context length is {window} tokens. Your messages resulted in {asked} tokens."
            raise Rejected(why, code="context_length_exceeded")
        return call.body

    def said(self, body: Body, reply: dict[str, Any]) -> str:
        """Raises Rejected for what the schema forbids: the grammar lets nothing else through."""
        schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema", {})
        flaws = [str(error) for error in jsonschema_rs.validator_for(schema).iter_errors(reply)]
        if flaws:
            raise Rejected(f"the test scripts what the schema forbids: {flaws[0]}")
        return json.dumps(reply)

    def bounds(self, body: Body) -> tuple[int | None, int]:
        most = body.get("max_completion_tokens", body.get("max_tokens"))
        return most, THOUGHT if MODELS[body["model"]].reasons else 0

    def prompt_usage(self, body: Body) -> dict[str, Any]:
        use = self.cache.use(body)
        details = {"audio_tokens": 0, "cached_tokens": use.read, "cache_write_tokens": use.written}
        return {"prompt_tokens": use.prompt, "prompt_tokens_details": details}


class FakeOpenAI:
    """Listens from the beginning; `close` ends it."""

    def __init__(self, api: Api) -> None:
        self.calls: list[Call] = []
        self._api = api
        self._script: deque[Scripted] = deque()
        self._server = WireServer(self._respond)
        self.base_url = f"{self._server.base_url}/v1"
        self.close = self._server.close

    @property
    def requests(self) -> list[Body]:
        """The bodies of all calls, oldest first."""
        return [call.body for call in self.calls if call.body is not None]

    def answer(self, reply: Reply) -> None:
        """Say `reply` next: an object as JSON, a text as it is, or what a callable makes of the request."""
        self._script.append(lambda body: self._said(body, reply))

    def complete(self, *, without: tuple[str, ...] = (), finish_reason: str | None = "stop", **message: Any) -> None:
        """Answer with a completion whose message has these fields; it lacks those of `without`."""
        self._script.append(lambda body: self._completion(body, message, finish_reason, without=without))

    def send(self, response: Response) -> None:
        """Answer with just this."""
        self._script.append(lambda _: response)

    def fail(
        self, status: int, code: str = "", headers: Mapping[str, str] | None = None, *, message: str = "as scripted"
    ) -> None:
        """Answer with an error. A used-up quota is its own type, too."""
        kind = code if code == "insufficient_quota" else KINDS.get(status, "invalid_request_error")
        error = Rejected(message, status, kind=kind, code=code or None)
        self._script.append(lambda _: self._error(error, headers or {}))

    def _respond(self, call: Call) -> Response:
        self.calls.append(call)
        if call.path != PATH:
            return Response(status=404, body=b"404 page not found", content_type="text/plain")
        try:
            body = self._api.accepted(call)
            return self._next()(body)
        except Rejected as rejected:
            return self._error(rejected, {})

    def _next(self) -> Scripted:
        if not self._script:
            raise Rejected("nothing is scripted: the test expects fewer calls")
        return self._script.popleft()

    def _said(self, body: Body, reply: Reply) -> Response:
        said = reply(body) if callable(reply) else reply
        if isinstance(said, Response):
            return said
        text = said if isinstance(said, str) else self._api.said(body, said)
        most, thought = self._api.bounds(body)
        if most is not None and tokens(text) + thought > most:
            cut = text.encode()[: max(0, most - thought) * 4].decode(errors="ignore")
            return self._completion(body, {"content": cut}, "length")
        return self._completion(body, {"content": text}, "stop")

    def _completion(
        self, body: Body, message: dict[str, Any], finish_reason: str | None, *, without: tuple[str, ...] = ()
    ) -> Response:
        _, thought = self._api.bounds(body)
        replied = tokens(message.get("content") or message.get("refusal") or "") + thought
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
        completion = {
            "id": f"chatcmpl-{len(self.calls):04}",
            "object": "chat.completion",
            "created": 1_795_000_000,
            "model": body["model"],
            "choices": [choice],
            "usage": {**self._api.prompt_usage(body), "completion_tokens": replied},
        }
        return self._json({name: value for name, value in completion.items() if name not in without})

    def _json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        request_id = {"x-request-id": f"req_{len(self.calls):04}"}
        return Response(status=status, body=json.dumps(value).encode(), headers={**request_id, **(headers or {})})

    def _error(self, error: Rejected, headers: Mapping[str, str]) -> Response:
        told = {"message": str(error), "type": error.kind, "param": None, "code": error.code}
        return self._json({"error": told}, error.status, headers)


@dataclass(frozen=True, slots=True)
class ServedOpenAI:
    """Fills Served."""

    model: Model
    fake: FakeOpenAI

    @property
    def requests(self) -> list[Body]:
        return self.fake.requests

    def answer(self, reply: Reply) -> None:
        self.fake.answer(reply)

    def refuse(self, explanation: str = "") -> None:
        self.fake.complete(content=None, refusal=explanation or "I can't help with that.")

    def cut(self, text: str) -> None:
        self.fake.complete(content=text, finish_reason="length")

    def fail(self, status: int, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.fake.fail(status, code, headers)


@asynccontextmanager
async def serve(**settings: Any) -> AsyncIterator[ServedOpenAI]:
    """The adapter as it talks to OpenAI itself, and its server. `settings` are those of `ModelSettings`.

    Not made by `open_model`, which takes no server of ours for OpenAI's.
    """
    fake = FakeOpenAI(OpenAIApi())
    defaults = {"provider": "openai", "model": "gpt-5.6-sol", "api_key": SecretStr(KEY), "base_url": fake.base_url}
    made = ModelSettings.model_validate({**defaults, **settings})
    key = made.api_key.get_secret_value() if made.api_key else ""
    try:
        async with openai.AsyncOpenAI(api_key=key, base_url=made.base_url, max_retries=0) as client:
            api = openai_model.OpenAIApi(client, made, at_openai=True)
            yield ServedOpenAI(LanguageModel(api, made, Prices("openai", made.price)), fake)
    finally:
        fake.close()
