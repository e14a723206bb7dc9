"""Server that behaves as Anthropic's Messages API (version 2026-10-21) as far as an adapter depends on it.

It refuses what the API refuses, counts tokens and simulates the prompt cache. Every answer begins with thinking.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from tests.kit.http_server import Call, Response
from tests.models import schema_rules
from tests.models.prompt_cache import PromptCache, blocks, canonical, request_tokens, tokens
from tests.models.wire import KEY, Body, Fake, Rejected, Served, in_pieces, served

THINKING = {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"}
FIELDS = {
    *("model", "max_tokens", "system", "messages", "tools", "output_config", "thinking", "metadata", "diagnostics"),
    *("service_tier", "stop_sequences", "stream"),
}


MODELS = {"claude-sonnet-5-5": 512, "claude-opus-5-5": 512, "claude-fable-5-2": 512, "claude-haiku-5-5": 4096}
"""Minimum tokens of a cached prompt prefix by model."""


def _texts(body: Body) -> Iterator[Body]:
    yield from blocks(body.get("system"))
    yield from (block for message in body["messages"] for block in blocks(message["content"]))


def _lives(body: Body) -> list[str]:
    return [control.get("ttl", "5m") for block in _texts(body) if (control := block.get("cache_control"))]


REFUSED: dict[str, Callable[[Body], Any]] = {
    "Extra inputs are not permitted": lambda body: body.keys() - FIELDS,
    "text content blocks must contain text": lambda body: not all(block["text"].strip() for block in _texts(body)),
    "A maximum of 4 blocks with cache_control may be provided.": lambda body: len(_lives(body)) > 4,
    "cache_control.ttl: not '5m' or '1h', the longer ones first": lambda body: (
        _lives(body) != sorted(_lives(body)) or {*_lives(body)} - {"1h", "5m"}
    ),
}
"""Refusals of the API that a request of ours could meet."""


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

    def __init__(self) -> None:
        self.cache = PromptCache()
        self.billed = 0
        """Tokens of all messages, in and out."""
        super().__init__()

    def message(self, *, without: tuple[str, ...] = (), **fields: Any) -> None:
        self.script(lambda body: self._message(body, without=without, **fields))

    def refuse(self, explanation: str = "") -> None:
        details = {"type": "refusal", "category": "cyber", "explanation": explanation}
        self.message(content=[], stop_reason="refusal", stop_details=details)

    def cut(self, text: str) -> None:
        self.message(content=_content(text), stop_reason="max_tokens")

    def respond(self, call: Call) -> Response:
        if call.headers.get("authorization") != f"Bearer {KEY}":
            raise Rejected("invalid bearer token", 401, "authentication_error")
        return self._model_info(call) if call.method == "GET" else super().respond(call)

    def accepted(self, call: Call) -> Body:
        body = call.body
        if body is None or call.path != self.path:
            raise Rejected("Not Found", 404, "not_found_error")
        if body["model"] not in MODELS:
            raise Rejected(f"model: {body['model']}", 404, "not_found_error")
        for why, is_refused in REFUSED.items():
            if is_refused(body):
                raise Rejected(why)
        try:
            schema_rules.check(((body.get("output_config") or {}).get("format") or {}).get("schema", {}))
        except schema_rules.Refused as refused:
            raise Rejected(f"output_config.format.schema: {refused}") from refused
        return body

    def reply(self, body: Body, text: str) -> Response:
        return self._message(body, content=_content(text))

    def told(self, error: Rejected) -> Body:
        details = {"details": {"error_code": error.code}} if error.code else {}
        return {"type": "error", "error": {"type": error.kind, "message": str(error), **details}}

    def _message(self, body: Body, *, without: tuple[str, ...] = (), **fields: Any) -> Response:
        content = fields.get("content", [THINKING])
        use = self.cache.use(body, MODELS[body["model"]])
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
            "usage": {**use, "output_tokens": said, "service_tier": "standard"},
            **fields,
        }
        said = {name: value for name, value in message.items() if name not in without}
        told = said.get("content")
        is_one = isinstance(told, list) and all(isinstance(block, dict) and "type" in block for block in told)
        return self.stream(_events(said)) if body.get("stream") and is_one else self.json(said)

    def _model_info(self, call: Call) -> Response:
        model = call.path.removeprefix("/v1/models/")
        if model not in MODELS:
            raise Rejected(f"model: {model}", 404, "not_found_error")
        return self.json({"type": "model", "id": model, "display_name": model, "lifecycle": "active"})


def _events(message: Body) -> Iterator[Body]:
    """The streamed message. Usage comes in two parts; the thinking is not shown."""
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
    fake = FakeAnthropic()
    return served(fake, **{"provider": "anthropic", "api_key": KEY, "base_url": fake.base_url, **settings})
