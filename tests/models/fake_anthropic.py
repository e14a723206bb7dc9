"""A server that behaves as Anthropic's Messages API does, as far as an adapter depends on it.

It refuses what the API refuses, counts tokens, simulates the prompt cache and its diagnosis, and says what it was told
to say: answers in their order, then what its policy makes of the request. Every answer begins with a thinking block.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
from pydantic import SecretStr

from agent_service.models.opening import open_model
from agent_service.models.settings import ModelSettings
from agent_service.ports import Model
from tests.models import anthropic_rules
from tests.models.anthropic_rules import MODELS, Body, Rejected
from tests.models.anthropic_tokens import canonical, request_tokens, tokens
from tests.models.model_house import KEY, Reply
from tests.models.prompt_cache import Diagnosis, PromptCache
from tests.models.wire import Call, Delivery, Response, WireServer

MOST_BYTES = 32 * 1024 * 1024
THINKING = {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"}
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
Scripted = Callable[[Body], Response]


class FakeAnthropic:
    """Listens from the beginning; `close` ends it. Not for several clients at once, as the script is one."""

    def __init__(self, *, key: str = KEY, most_bytes: int = MOST_BYTES) -> None:
        self.cache = PromptCache()
        self.calls: list[Call] = []
        self.billed = 0
        """Tokens of all messages, in and out."""
        self.policy: Reply | None = None
        """What is said when nothing is scripted."""
        self._script: deque[Scripted] = deque()
        self._diagnosis = Diagnosis()
        self._key, self._most_bytes = key, most_bytes
        self._server = WireServer(self._respond)
        self.base_url = self._server.base_url
        self.close = self._server.close

    @property
    def requests(self) -> list[Body]:
        """The bodies of all calls for a message, oldest first."""
        return [call.body for call in self.calls if call.path == "/v1/messages" and call.body is not None]

    def answer(self, reply: Reply) -> None:
        """Say `reply` next: an object as JSON, a text as it is, or what a callable makes of the request."""
        self._script.append(lambda body: self._said(body, reply))

    def message(self, *, without: tuple[str, ...] = (), **fields: Any) -> None:
        """Answer with a message that has these fields, and not those of `without`."""
        self._script.append(lambda body: self._message(body, without=without, **fields))

    def send(self, response: Response) -> None:
        """Answer with just this."""
        self._script.append(lambda _: response)

    def deliver(self, delivery: Delivery) -> None:
        """Answer properly, but let it go out like this."""
        self._script.append(lambda body: Response(body=self._message(body).body, delivery=delivery))

    def fail(
        self, status: int, code: str = "", headers: Mapping[str, str] | None = None, *, message: str = "as scripted"
    ) -> None:
        """Answer with an error. `code` is an `error_code` in its details."""
        error = Rejected(message, status, KINDS.get(status, "api_error"))
        self._script.append(lambda _: self._error(error, code, headers or {}))

    def _respond(self, call: Call) -> Response:
        self.calls.append(call)
        try:
            anthropic_rules.check_headers(call.headers, self._key)
            return self._model_info(call) if call.method == "GET" else self._posted(call)
        except Rejected as rejected:
            return self._error(rejected, "", {})

    def _posted(self, call: Call) -> Response:
        if len(call.raw) > self._most_bytes:
            raise Rejected("Request exceeds the maximum size", 413, "request_too_large")
        body, counting = call.body, call.path == "/v1/messages/count_tokens"
        if body is None:
            raise Rejected("the request body is no JSON object")
        anthropic_rules.check(body, counting=counting)
        if counting:
            return self._json({"input_tokens": request_tokens(body)})
        if call.path != "/v1/messages":
            raise Rejected("Not Found", 404, "not_found_error")
        return self._script.popleft()(body) if self._script else self._said(body, self.policy)

    def _said(self, body: Body, reply: Reply | None) -> Response:
        said = reply(body) if callable(reply) else reply
        if isinstance(said, Response):
            return said
        if said is None:
            raise Rejected("nothing is scripted: the test expects fewer calls")
        text = said if isinstance(said, str) else self._fitting(body, said)
        return self._message(body, content=[THINKING, {"type": "text", "text": text}])

    def _fitting(self, body: Body, said: dict[str, Any]) -> str:
        """An object as the API would say it: the grammar lets nothing else through."""
        schema = ((body.get("output_config") or {}).get("format") or {}).get("schema", {})
        flaws = [str(error) for error in jsonschema_rs.validator_for(schema).iter_errors(said)]
        if flaws:
            raise Rejected(f"the test scripts what the schema forbids: {flaws[0]}")
        return json.dumps(said)

    def _message(self, body: Body, *, without: tuple[str, ...] = (), **fields: Any) -> Response:
        message_id, content = f"msg_{len(self.calls):04}", fields.get("content", [THINKING])
        use = self.cache.use(body, MODELS[body["model"]].least_cached)
        said = min(tokens(canonical(content)), body["max_tokens"])
        self.billed += request_tokens(body) + said
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "stop_details": None,
            "usage": {**use.usage(), "output_tokens": said, "service_tier": "standard"},
            **self._diagnosis.of(body, message_id),
            **fields,
        }
        return self._json({name: value for name, value in message.items() if name not in without})

    def _model_info(self, call: Call) -> Response:
        model = call.path.removeprefix("/v1/models/")
        if model not in MODELS:
            raise Rejected(f"model: {model}", 404, "not_found_error")
        return self._json({"type": "model", "id": model, "display_name": model, "lifecycle": "active"})

    def _json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        request_id = {"request-id": f"req_{len(self.calls):04}"}
        return Response(status=status, body=json.dumps(value).encode(), headers={**request_id, **(headers or {})})

    def _error(self, error: Rejected, code: str, headers: Mapping[str, str]) -> Response:
        details = {"details": {"error_code": code}} if code else {}
        told = {"type": "error", "error": {"type": error.kind, "message": str(error), **details}}
        return self._json(told, error.status, headers)


@dataclass(frozen=True, slots=True)
class ServedAnthropic:
    """Fills Served."""

    model: Model
    fake: FakeAnthropic

    @property
    def requests(self) -> list[Body]:
        return self.fake.requests

    def answer(self, reply: Reply) -> None:
        self.fake.answer(reply)

    def refuse(self, explanation: str = "") -> None:
        details = {"type": "refusal", "category": "cyber", "explanation": explanation}
        self.fake.message(content=[], stop_reason="refusal", stop_details=details)

    def cut(self, text: str) -> None:
        self.fake.message(content=[THINKING, {"type": "text", "text": text}], stop_reason="max_tokens")

    def fail(self, status: int, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.fake.fail(status, code, headers)


@asynccontextmanager
async def serve(**settings: Any) -> AsyncIterator[ServedAnthropic]:
    """The adapter, made as the service makes it, and its server. `settings` are those of `ModelSettings`."""
    fake = FakeAnthropic()
    defaults = {"provider": "anthropic", "api_key": SecretStr(KEY), "base_url": fake.base_url}
    try:
        async with open_model(ModelSettings.model_validate({**defaults, **settings})) as model:
            yield ServedAnthropic(model, fake)
    finally:
        fake.close()
