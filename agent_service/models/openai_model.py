"""OpenAI's models, and servers with its API (Ollama, vLLM), by OpenAI's SDK.

Unknown stop reasons are no error: servers have their own. Parameters that servers may not know go to OpenAI alone.
Servers limit a reply by `max_tokens`, which OpenAI's reasoning models refuse. From GPT-5.6 on, OpenAI caches only at
marks, which cost more than plain input and which older models refuse.
"""

import logging
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import openai

from agent_service.core.events import ModelUsage
from agent_service.core.phases import ModelRefusal
from agent_service.models.call import LanguageModel, Reply, Request, count
from agent_service.models.prompts.prompt import Prompt
from agent_service.models.settings import ModelSettings
from agent_service.models.transport import check_transport, signed_options

OPENAI_HOST = "api.openai.com"
USAGE_WISH = "stream_options"
"""Requests the usage at the end of a stream; some servers ignore it, and a few refuse it."""
FIRST_MARKED = (5, 6)
MOST_BYTES_PER_TOKEN = 8
"""Upper bound for our prompts: a server that counts fewer tokens has not read all of it."""

_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?")

log = logging.getLogger(__name__)


class OpenAIModel(LanguageModel):
    sdk: Any = openai
    hides_thinking = True

    def __init__(self, client: openai.AsyncOpenAI, settings: ModelSettings) -> None:
        host = client.base_url.host
        self._at_openai = host == OPENAI_HOST or host.endswith(f".{OPENAI_HOST}")
        self._asks_for_usage = True
        super().__init__(client, settings, "openai" if self._at_openai else None)

    def ask(self, request: Request) -> Any:
        usage = {USAGE_WISH: {"include_usage": True}} if self._asks_for_usage else {}
        create: Any = self._client.chat.completions.with_streaming_response.create
        return create(**self._body(request), stream=True, **usage)

    def take(self, event: dict[str, Any], reply: Reply) -> None:
        reply.id, reply.model = event.get("id") or reply.id, event.get("model") or reply.model
        if event.get("usage"):
            reply.usage = _usage(event["usage"])
        match event.get("choices"):
            case [{"delta": {**delta}, **choice}, *_]:
                for name, text in delta.items():
                    if name == "content" and isinstance(text, str):
                        reply.add_text(text)
                    elif isinstance(text, str) and name != "role":
                        reply.add_thinking(text)
                reply.stop_reason = str(choice.get("finish_reason") or reply.stop_reason)
                if isinstance(text := delta.get("refusal"), str) and text:  # some servers send an empty one
                    before = reply.refusal.explanation if reply.refusal else ""
                    reply.refusal = ModelRefusal(category="refusal", explanation=f"{before}{text}")
        if reply.stop_reason == "content_filter":
            reply.refusal = reply.refusal or ModelRefusal(category="content_filter")

    def end(self, request: Request, reply: Reply) -> None:
        reply.hidden = False
        if reply.usage is None and self._at_openai:
            raise ValueError("it is no complete chat completion: usage")
        _look_for_a_cut_prompt(reply, request)

    def does_without(self, request: Request, error: Any) -> bool:
        if USAGE_WISH not in f"{error} {error.body}":
            return super().does_without(request, error)
        if self._asks_for_usage:
            self._asks_for_usage = False
            log.warning("the model's server cannot say what a streamed reply costs: tokens are estimated from now on")
        return True

    def error_details(self, error: openai.APIStatusError) -> tuple[str | None, str]:
        text = error.body.get("message") if isinstance(error.body, dict) else error.body
        named = error.code and not error.code.isdigit()
        code = error.code if named and error.type != "insufficient_quota" else error.type
        code = code if isinstance(code, str) else None  # servers send any type
        return code, text if isinstance(text, str) and text else error.message

    def _body(self, request: Request) -> dict[str, Any]:
        prompt, phase = request.prompt, self._settings.of(request.question.phase)
        body: dict[str, Any] = {
            "model": phase.model,
            "max_completion_tokens" if self._at_openai else "max_tokens": request.reply_tokens,
        }
        if self.enforces(request):
            form = {"name": "reply", "strict": True, "schema": _all_required(prompt.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if phase.effort:
            body["reasoning_effort"] = phase.effort
        marked = False
        if self._at_openai:
            body["store"] = False
            if self._settings.cache != "off":
                body["prompt_cache_key"] = request.question.state.run_id  # the same key leads to the same cache
                marked = _is_marked(str(phase.model))
        if marked:  # else the end of the tail is cached too: paid in every call, and never hit
            body["prompt_cache_options"] = {"mode": "explicit"}
        return body | {"messages": _messages(prompt, marked=marked)}


@asynccontextmanager
async def opened(settings: ModelSettings) -> AsyncIterator[LanguageModel]:
    async with openai.AsyncOpenAI(**signed_options(settings)) as client:
        check_transport(settings, str(client.base_url))
        yield OpenAIModel(client, settings)


def _all_required(schema: Any) -> Any:
    """Schema for the strict mode, where optional fields are required and may be null or empty."""
    if isinstance(schema, list):
        return [_all_required(node) for node in schema]
    if not isinstance(schema, dict):
        return schema
    within = {name: _all_required(node) for name, node in schema.items()}
    if "properties" not in within:
        return within
    fields = {
        name: node if name in schema["required"] or node.get("type") == "array" else {"anyOf": [node, {"type": "null"}]}
        for name, node in within["properties"].items()
    }
    return within | {"properties": fields, "required": list(fields)}


def _look_for_a_cut_prompt(reply: Reply, request: Request) -> None:
    """Ollama silently drops what exceeds its context, which may be the rules."""
    if reply.usage is None:
        return
    tokens, size = reply.usage.input_tokens, request.prompt.size()
    if tokens * MOST_BYTES_PER_TOKEN < size:
        why = "the model's server seems to have read only a part of the prompt: give it a longer context"
        read = {"run_id": request.question.state.run_id, "tokens_read": tokens, "prompt_bytes": size}
        log.warning(why, extra=read)


def _is_marked(model: str) -> bool:
    version = _VERSION.match(model)
    return version is not None and (int(version[1]), int(version[2] or 0)) >= FIRST_MARKED


def _messages(prompt: Prompt, *, marked: bool) -> list[dict[str, Any]]:
    """One text for each role, because Ollama would turn every part into a message; or parts with at most four marks:
    rules, case, and the two newest notes; the call before has written the older one.
    """
    newest = len(prompt.message) - 2
    system: Any = _parts(prompt.system, {len(prompt.system) - 1}) if marked else "\n\n".join(prompt.system)
    user: Any = _parts(prompt.message, {0, newest - 1, newest}) if marked else "\n\n".join(prompt.message)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _parts(blocks: tuple[str, ...], marked: Collection[int]) -> list[dict[str, Any]]:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    return [
        {"type": "text", "text": f"{block}\n\n", **(mark if at in marked else {})} for at, block in enumerate(blocks)
    ]


def _usage(reported: Any) -> ModelUsage:
    """`prompt_tokens` includes cached ones. Raises ValueError."""
    plain = count(reported, "prompt_tokens")
    cached = reported.get("prompt_tokens_details")
    return ModelUsage(
        input_tokens=plain,
        output_tokens=count(reported, "completion_tokens"),
        cache_read_tokens=count(cached, "cached_tokens", 0),
        cache_write_tokens=count(cached, "cache_write_tokens", 0),
    )
