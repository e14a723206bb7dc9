"""A server that behaves as Anthropic's Messages API does, as far as an adapter depends on it.

It refuses what the API refuses, counts tokens and simulates the prompt cache. Every answer begins with thinking.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, ClassVar

from tests.models import anthropic_rules
from tests.models.anthropic_rules import MODELS
from tests.models.prompt_cache import PromptCache
from tests.models.tokens import canonical, request_tokens, tokens
from tests.models.wire import KEY, Body, Call, Delivery, Fake, Rejected, Response, Served, in_pieces, served

MOST_BYTES = 32 * 1024 * 1024
THINKING = {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"}


class FakeAnthropic(Fake):
    """The API for holders of KEY."""

    path = "/v1/messages"
    request_id = "request-id"
    kinds: ClassVar = {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self.cache = PromptCache()
        self.billed = 0
        """Tokens of all messages, in and out."""
        self._most_bytes = most_bytes
        super().__init__()

    def message(self, *, without: tuple[str, ...] = (), **fields: Any) -> None:
        """Answer with a message that has these fields, and not those of `without`."""
        self.script(lambda body: self._message(body, without=without, **fields))

    def deliver(self, delivery: Delivery) -> None:
        """Answer properly, but let it go out like this."""
        self.script(lambda body: replace(self._message(body), delivery=delivery))

    def refuse(self, explanation: str = "") -> None:
        details = {"type": "refusal", "category": "cyber", "explanation": explanation}
        self.message(content=[], stop_reason="refusal", stop_details=details)

    def cut(self, text: str) -> None:
        self.message(content=_content(text), stop_reason="max_tokens")

    def respond(self, call: Call) -> Response:
        anthropic_rules.check_headers(call.headers, KEY)
        return self._model_info(call) if call.method == "GET" else super().respond(call)

    def accepted(self, call: Call) -> Body:
        if len(call.raw) > self._most_bytes:
            raise Rejected("Request exceeds the maximum size", 413, "request_too_large")
        if call.body is None:
            raise Rejected("the request body is no JSON object")
        if call.path != self.path:
            raise Rejected("Not Found", 404, "not_found_error")
        anthropic_rules.check(call.body)
        return call.body

    def schema(self, body: Body) -> Body:
        schema: Body = ((body.get("output_config") or {}).get("format") or {}).get("schema", {})
        return schema

    def reply(self, body: Body, text: str) -> Response:
        return self._message(body, content=_content(text))

    def told(self, error: Rejected) -> Body:
        details = {"details": {"error_code": error.code}} if error.code else {}
        return {"type": "error", "error": {"type": error.kind, "message": str(error), **details}}

    def _message(self, body: Body, *, without: tuple[str, ...] = (), **fields: Any) -> Response:
        content = fields.get("content", [THINKING])
        use = self.cache.use(body, MODELS[body["model"]].least_cached)
        said = min(tokens(canonical(content)), body["max_tokens"])
        self.billed += request_tokens(body) + said
        message = {
            "id": f"msg_{len(self.calls):04}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "stop_details": None,
            "usage": {**use.usage(), "output_tokens": said, "service_tier": "standard"},
            **fields,
        }
        said = {name: value for name, value in message.items() if name not in without}
        blocks = said.get("content")
        is_one = isinstance(blocks, list) and all(isinstance(block, dict) and "type" in block for block in blocks)
        return self.stream(_events(said)) if body.get("stream") and is_one else self.json(said)

    def _model_info(self, call: Call) -> Response:
        model = call.path.removeprefix("/v1/models/")
        if model not in MODELS:
            raise Rejected(f"model: {model}", 404, "not_found_error")
        return self.json({"type": "model", "id": model, "display_name": model, "lifecycle": "active"})


def _events(message: Body) -> Iterator[Body]:
    """The message as it is streamed. What it costs is said in two halves, and what was thought is not shown."""
    usage = message.get("usage")
    begun = {"usage": {**usage, "output_tokens": 1} if usage else usage} if "usage" in message else {}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, **begun}}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        hidden = block["type"] != "text"
        empty = {**block, "signature": ""} if hidden else {**block, "text": block.get("text") and ""}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        deltas = [{"type": "text_delta", "text": piece} for piece in in_pieces(block.get("text") or "")]
        for delta in [{"type": "signature_delta", "signature": block.get("signature")}] if hidden else deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    told = {name: message.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
    spent = {"usage": {name: usage[name] for name in ("output_tokens",) if name in usage}} if usage else {}
    yield {"type": "message_delta", "delta": told, **spent}
    yield {"type": "message_stop"}


Claude = Served[FakeAnthropic]


def _content(text: str) -> list[Body]:
    return [THINKING, {"type": "text", "text": text}]


def serve(**settings: Any) -> AbstractAsyncContextManager[Served[FakeAnthropic]]:
    """Claude and its server. `settings` are those of `ModelSettings`."""
    fake = FakeAnthropic()
    return served(fake, **{"provider": "anthropic", "api_key": KEY, "base_url": fake.base_url, **settings})
