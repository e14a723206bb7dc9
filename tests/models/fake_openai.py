"""Servers with OpenAI's chat completions: OpenAI's own and Ollama, as far as an adapter depends on them.

OpenAI's refuses what the API refuses, keeps replies to their schema, and thinks before them. Ollama needs no key,
ignores unknown fields and the reply's schema, does not know `max_completion_tokens`, reports no cache, and silently
truncates prompts to its context.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Literal

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from agent_service.models import openai_model
from tests.kit.http_server import Call, Response
from tests.models.prompt_cache import canonical, tokens
from tests.models.wire import KEY, Body, Fake, Rejected, Served, in_pieces, served

FIELDS = CompletionCreateParamsNonStreaming.__required_keys__ | CompletionCreateParamsNonStreaming.__optional_keys__
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
NOT_IN_STRICT = ("allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties")


MODELS = ("gpt-5.6-sol", "gpt-5.4", "gpt-4.1")
REASON = MODELS[:2]
"""Models that think before they reply."""
MARKED = MODELS[:1]
"""Models whose cache uses marks."""


def parts(body: Body) -> Iterator[tuple[str, Body]]:
    """Parts of all messages with their roles; a text is one part."""
    for message in body["messages"]:
        said = message["content"]
        for part in [{"type": "text", "text": said}] if isinstance(said, str) else said:
            yield message["role"], part


def rendered(body: Body) -> list[tuple[str, bool]]:
    """The prompt in pieces, its reply's schema first; True where a mark ends the piece."""
    said = [(f"<{role}>{part['text']}", "prompt_cache_breakpoint" in part) for role, part in parts(body)]
    return [(canonical(body.get("response_format")), False), *said]


def _is_marked(body: Body) -> bool:
    return "prompt_cache_options" in body or any(marked for _, marked in rendered(body))


REFUSED: dict[str, Callable[[Body], Any]] = {
    "Unknown parameter": lambda body: body.keys() - FIELDS,
    "Invalid 'messages'": lambda body: not body["messages"] or not all(part["text"] for _, part in parts(body)),
    "'max_tokens' is not supported with this model": lambda body: "max_tokens" in body and body["model"] in REASON,
    "'reasoning_effort' is not supported": lambda body: (
        "reasoning_effort" in body and not (body["model"] in REASON and body["reasoning_effort"] in EFFORTS)
    ),
    "Invalid 'prompt_cache_key': string too long": lambda body: len(body.get("prompt_cache_key", "")) > 64,
    "marks are not supported on this model": lambda body: _is_marked(body) and body["model"] not in MARKED,
}
"""Refusals of the API, from the SDK's types, the vendor's documentation and its error messages."""


def strict_flaws(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (f"'{word}' is not permitted." for word in NOT_IN_STRICT if word in schema)
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be supplied and to be false."
        if "properties" in schema and schema["properties"].keys() - set(schema.get("required", ())):
            yield "'required' is required to be supplied and to be an array including every key in properties"
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for one in inner:
        yield from strict_flaws(one)


THOUGHT = 64
PULLED = "qwen3:8b"


class FakeOpenAI(Fake):
    """OpenAI's own server, for holders of KEY."""

    path = "/v1/chat/completions"
    request_id = "x-request-id"
    kinds: ClassVar = {402: "insufficient_quota", 429: "requests", 500: "server_error", 503: "server_error"}

    def __init__(self) -> None:
        super().__init__()
        self.base_url += "/v1"

    def complete(self, **said: Any) -> None:
        self.script(lambda body: self._completion(body, **said))

    def refuse(self, explanation: str = "") -> None:
        self.complete(content=None, refusal=explanation or "I can't help with that.")

    def cut(self, text: str) -> None:
        self.complete(content=text, finish_reason="length")

    def respond(self, call: Call) -> Response:
        if call.path != self.path:
            return Response(status=404, body=b"404 page not found", content_type="text/plain")
        return super().respond(call)

    def accepted(self, call: Call) -> Body:
        if call.headers.get("authorization") != f"Bearer {KEY}":
            told = call.headers.get("authorization", "")
            raise Rejected(f"Incorrect API key provided: {told}.", 401, code="invalid_api_key")
        body = call.body
        if body is None:
            raise Rejected("We could not parse the JSON body of your request.")
        if body["model"] not in MODELS:
            raise Rejected(f"The model `{body['model']}` does not exist", 404, code="model_not_found")
        for why, is_refused in REFUSED.items():
            if is_refused(body):
                raise Rejected(why, code="invalid_value")
        schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema", {"type": "object"})
        for flaw in strict_flaws(schema):
            raise Rejected(f"Invalid schema for response_format: {flaw}")
        return body

    def reply(self, body: Body, text: str) -> Response:
        return self._completion(body, content=text)

    def told(self, error: Rejected) -> Body:
        """A used-up quota also has its own type."""
        kind = error.code if error.code == "insufficient_quota" else error.kind
        return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}

    def prompt_tokens(self, body: Body) -> int:
        return sum(tokens(text) for text, _ in rendered(body))

    def _completion(
        self,
        body: Body,
        *,
        without: tuple[str, ...] = (),
        finish_reason: str | None = "stop",
        usage: Body | None = None,
        **message: Any,
    ) -> Response:
        most = body.get("max_completion_tokens") or body["max_tokens"]
        thought = THOUGHT if body["model"] in REASON else 0
        replied = min(most, tokens(message.get("content") or message.get("refusal") or "") + thought)
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
        completion = {
            "id": f"chatcmpl-{len(self.calls):04}",
            "object": "chat.completion",
            "created": 1_795_000_000,
            "model": body["model"],
            "choices": [choice],
            "usage": usage or {"prompt_tokens": self.prompt_tokens(body), "completion_tokens": replied},
        }
        said = {name: value for name, value in completion.items() if name not in without}
        return self.stream(self._chunks(body, said)) if body.get("stream") else self.json(said)

    def _chunks(self, body: Body, completion: Body) -> Iterator[Body | str]:
        """The streamed completion. Usage comes at the end, if it was requested."""
        usage = {"usage": completion.pop("usage")} if "usage" in completion else {}
        choices = completion.pop("choices", None)
        chunk = {**completion, "object": "chat.completion.chunk"}
        for delta, finish_reason in _deltas(choices[0]) if choices else ():
            yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
        if self.tells_usage(body):
            yield {**chunk, "choices": [], **usage}
        yield "[DONE]"

    def tells_usage(self, body: Body) -> bool:
        return bool((body.get("stream_options") or {}).get("include_usage"))


def _deltas(choice: Body) -> Iterator[tuple[Body, str | None]]:
    yield {"role": "assistant", "content": ""}, None
    for name, text in choice["message"].items():
        if name != "role" and isinstance(text, str):
            yield from (({name: piece}, None) for piece in in_pieces(text))
    yield {}, choice["finish_reason"]


StreamOptions = Literal["known", "ignored", "refused"]


class FakeOllama(FakeOpenAI):
    """`context` is in tokens. `stream_options` says how the server treats them: not every such server knows them."""

    def __init__(self, context: int, stream_options: StreamOptions = "known") -> None:
        super().__init__()
        self._context = context
        self._stream_options = stream_options

    def tells_usage(self, body: Body) -> bool:
        return self._stream_options == "known" and super().tells_usage(body)

    def accepted(self, call: Call) -> Body:
        body = call.body
        if body is None:
            raise Rejected("invalid character 'x' looking for beginning of value")
        if body.get("model") != PULLED:
            why = f'model "{body.get("model")}" not found, try pulling it first'
            raise Rejected(why, 404, kind="not_found_error")
        if self._stream_options == "refused" and "stream_options" in body:
            raise Rejected("1 validation error: ('body', 'stream_options'): Extra inputs are not permitted", 422)
        return body

    def prompt_tokens(self, body: Body) -> int:
        return min(self._context, sum(tokens(text) for text, _ in rendered(body)[1:]))


OpenAI = Served[FakeOpenAI]
Ollama = Served[FakeOllama]


@asynccontextmanager
async def serve(**settings: Any) -> AsyncIterator[Served[FakeOpenAI]]:
    fake = FakeOpenAI()
    defaults = {"provider": "openai", "model": "gpt-5.6-sol", "api_key": KEY, "base_url": fake.base_url}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(openai_model, "OPENAI_HOST", "127.0.0.1")
        async with served(fake, **{**defaults, **settings}) as made:
            yield made


def serve_ollama(
    *, context: int = 32_768, stream_options: StreamOptions = "known", **settings: Any
) -> AbstractAsyncContextManager[Served[FakeOllama]]:
    fake, free = FakeOllama(context, stream_options), {"input": 0, "output": 0}
    defaults = {"provider": "openai", "model": PULLED, "base_url": fake.base_url, "price": free}
    return served(fake, **{**defaults, **settings})
