"""Claude, by Anthropic's SDK.

Replies are typed by `output_config.format` and validated here: `messages.parse` would lose an invalid reply, and
current models refuse forced tools. Unknown blocks and stop reasons are no error: new ones appear at any time.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import anthropic

from agent_service.core.events import ModelUsage
from agent_service.core.phases import ModelRefusal, Phase
from agent_service.core.state import RunState
from agent_service.models.call import LanguageModel, Reply, Request, count
from agent_service.models.prompts.prompt import Prompt
from agent_service.models.settings import ModelSettings
from agent_service.models.transport import check_transport, client_options, signed_options
from agent_service.run.ports import ModelQuestion
from groundwork.service.errors import Misconfigured

SLOW_TOOLS_S = 240.0
"""Slower tools outlive a cache of five minutes."""
OBSERVED_STEPS = 5
NOTES_PER_BREAKPOINT = 15
"""The provider looks back 20 blocks for a cached prefix."""

PRICE_LISTS = {"anthropic": "anthropic", "bedrock": "aws", "vertex": "google"}

log = logging.getLogger(__name__)


class Claude(LanguageModel):
    sdk: Any = anthropic

    def ask(self, request: Request) -> Any:
        return self._client.messages.with_streaming_response.create(**self._body(request), stream=True)

    def end(self, request: Request, reply: Reply) -> None:
        if reply.usage is None:
            raise ValueError("it is no complete message: usage")
        reply.cache_miss = _cache_miss(reply.message, reply.usage)
        if reply.cache_miss:
            where = {"run_id": request.question.state.run_id, "why": reply.cache_miss, "reply": reply.id}
            log.warning("the prompt cache was missed", extra=where)

    def take(self, event: dict[str, Any], reply: Reply) -> None:
        match event:
            case {"type": "message_start", "message": dict() as begun}:
                reply.message |= begun
                reply.id, reply.model = begun.get("id", ""), begun.get("model", "")
            case {"type": "content_block_start", "content_block": {"type": kind, **block}}:
                reply.add_text(text if isinstance(text := block.get("text"), str) else "")
                reply.hidden = reply.hidden or kind in ("thinking", "redacted_thinking")
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str() as text}}:
                reply.add_text(text)
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": str() as thought}}:
                reply.hidden = reply.hidden and not thought
                reply.add_thinking(thought)
            case {"type": "message_delta", "delta": dict() as delta}:
                newer = {name: value for name, value in _object(event.get("usage")).items() if value is not None}
                reply.message |= {**delta, "usage": _object(reply.message.get("usage")) | newer}
                reply.stop_reason = delta.get("stop_reason") or ""
                reply.hidden = False  # its token counts include all thinking
                if reply.stop_reason == "refusal":
                    why = _object(delta.get("stop_details"))
                    category, explanation = why.get("category") or "refusal", why.get("explanation") or ""
                    reply.refusal = ModelRefusal(category=category, explanation=explanation)
        if event.get("type") in ("message_start", "message_delta") and (usage := reply.message.get("usage")):
            reply.usage = _usage(usage)
            reply.cached_1h = count(_object(usage).get("cache_creation"), "ephemeral_1h_input_tokens", 0)

    def note_on(self, found: Any) -> str:
        lifecycle = getattr(found, "lifecycle", None) or "active"  # other servers tell none
        note = f"{found.id} is {lifecycle}, and retires at {found.retires_at}" if lifecycle != "active" else ""
        return super().note_on(found) or note

    def cached_1h(self, state: RunState) -> bool:
        return self._ttl(state) == "1h"

    def error_details(self, error: anthropic.APIStatusError) -> tuple[str | None, str]:
        code = next((said for said in (error.error_code, error.type) if isinstance(said, str)), None)
        return code, error.api_message if isinstance(error.api_message, str) else error.message

    def _body(self, request: Request) -> dict[str, Any]:
        question, prompt = request.question, request.prompt
        phase, kept = self._settings.of(question.phase), self._kept(question)
        output: dict[str, Any] = {"effort": phase.effort} if phase.effort else {}
        if self.enforces(request):
            output["format"] = {"type": "json_schema", "schema": prompt.schema}
        body: dict[str, Any] = {
            "model": phase.model,
            "max_tokens": request.reply_tokens,
            "system": [*map(_block, prompt.system[:-1]), _block(prompt.system[-1], kept)],
            "messages": [{"role": "user", "content": _content(question, prompt, kept)}],
            **({"output_config": output} if output else {}),
        }
        if kept and self._settings.platform == "anthropic":
            body["diagnostics"] = {"previous_message_id": question.state.replies.get(prompt.schema_hash)}
        return body

    def _kept(self, question: ModelQuestion) -> dict[str, str]:
        compacts_apart = self._settings.of(Phase.COMPACT).model != self._settings.of(Phase.REFLECT).model
        unread = {Phase.VERIFY, Phase.COMPACT} if compacts_apart else {Phase.VERIFY}
        if self._settings.cache == "off" or question.phase in unread:
            return {}
        return {"type": "ephemeral", "ttl": self._ttl(question.state)}

    def _ttl(self, state: RunState) -> str:
        if self._settings.cache != "auto":
            return self._settings.cache
        seconds = sorted(record.seconds for record in state.completed[-OBSERVED_STEPS:])
        return "1h" if seconds and seconds[len(seconds) // 2] > SLOW_TOOLS_S else "5m"


@asynccontextmanager
async def opened(settings: ModelSettings) -> AsyncIterator[LanguageModel]:
    try:
        client = _client(settings)
    except ImportError as error:
        needed = f"needs a package: pip install 'anthropic[{settings.platform}]'"
        raise Misconfigured(f"agent.model.platform {settings.platform} {needed}") from error
    except (anthropic.AnthropicError, ValueError) as error:
        raise Misconfigured(f"agent.model.platform {settings.platform}: {error}") from error
    async with client:
        check_transport(settings, str(client.base_url))
        yield Claude(client, settings, PRICE_LISTS[settings.platform])


def _client(settings: ModelSettings) -> Any:
    own: dict[str, Any] = {"open_telemetry": {"propagation": False, "traces": False}}  # spans are made from the journal
    if settings.platform == "anthropic":
        return anthropic.AsyncAnthropic(**signed_options(settings), **own)
    on_bedrock = settings.platform == "bedrock"
    kind: Any = anthropic.AsyncAnthropicBedrockMantle if on_bedrock else anthropic.AsyncAnthropicVertex
    client = kind(**client_options(settings), **own)
    if (client.api_key if on_bedrock else client.access_token) is None:
        import_module("botocore" if on_bedrock else "google.auth")  # signs; else the SDK would fail in the first call
    return client


def _block(text: str, kept: dict[str, str] | None = None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    return {**block, "cache_control": kept} if kept else block


def _content(question: ModelQuestion, prompt: Prompt, kept: dict[str, str]) -> list[dict[str, Any]]:
    """Caches notes up to the newest. A compaction only reads the cache: its notes change with it."""
    newest = len(prompt.notes) - (2 if question.phase is Phase.COMPACT else 1)
    marked = {newest, newest - NOTES_PER_BREAKPOINT}
    notes = [_block(note, kept if at in marked else None) for at, note in enumerate(prompt.notes)]
    return [_block(prompt.case, kept), *notes, _block(prompt.tail)]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _usage(reported: Any) -> ModelUsage:
    """`input_tokens` excludes tokens read from or written to the cache. Raises ValueError."""
    read, written = (count(reported, f"cache_{how}_input_tokens", 0) for how in ("read", "creation"))
    return ModelUsage(
        input_tokens=count(reported, "input_tokens") + read + written,
        output_tokens=count(reported, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _cache_miss(message: dict[str, Any], usage: ModelUsage) -> str:
    """The provider's reason. "messages_changed" counts only if nothing was read: our messages always change."""
    why = _object(_object(message.get("diagnostics")).get("cache_miss_reason"))
    kind, tokens = why.get("type", ""), why.get("cache_missed_input_tokens")
    if kind == "messages_changed" and usage.cache_read_tokens:
        return ""
    return f"{kind} ({tokens} tokens)" if tokens else kind
