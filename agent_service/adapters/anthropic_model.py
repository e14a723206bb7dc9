"""Claude, by Anthropic's SDK. Fills the port Model.

Rules: one request per call and no retries inside the SDK: every try is journaled and put off durably above it. Replies
are typed by `output_config.format` and validated by us: `messages.parse` would lose a reply that does not fit, and
forced tools are refused by current models. `temperature` and `thinking` are never sent: the effort steers.
"""

import asyncio
import json
import logging
from typing import Any

import anthropic
import httpx2
from anthropic.types import Message

from agent_service.adapters.model_errors import by_status, retry_after_s, without_answer
from agent_service.adapters.prices import Prices, TokenCounts
from agent_service.core.events import ModelUsage, Provenance
from agent_service.core.phases import Decision, Plan, Refusal, Unusable
from agent_service.core.state import Reserve, RunState
from agent_service.errors import ModelError
from agent_service.model_settings import MOST_REPLY_TOKENS, ModelSettings
from agent_service.ports import Answer, Estimate, Question
from agent_service.prompts.prompt import Prompt, compose
from agent_service.prompts.replies import MOST_RAW, read

BYTES_PER_TOKEN = 2
"""Fewer than any text has that is not made for it, so that a reserve is not too small."""
SLOW_TOOLS_S = 240.0
"""From there on a cache that lasts five minutes would be gone before the next call."""
OBSERVED_STEPS = 5
NOTES_PER_BREAKPOINT = 15
"""A provider looks back 20 blocks for what it has cached."""

log = logging.getLogger(__name__)


class AnthropicModel:
    """One client for all runs of the process."""

    def __init__(self, client: Any, settings: ModelSettings, prices: Prices) -> None:
        """`client` is an AsyncAnthropic, or one of the SDK's clients for clouds, with `max_retries=0`."""
        self._client = client
        self._settings = settings
        self._prices = prices

    def estimate(self, question: Question) -> Estimate | None:
        prompt, phase = compose(question), self._settings.of(question.phase)
        tokens = (prompt.size() + len(json.dumps(prompt.schema))) // BYTES_PER_TOKEN
        reply = self._most_tokens(question)
        model = str(phase.model)
        most = self._prices.most_usd(model, prompt=tokens, reply=reply, kept_1h=self._ttl(question.state) == "1h")
        return Estimate(
            model=model,
            reserve=Reserve(tokens=tokens + reply, cost_usd=most),
            prompt_hash=prompt.template_hash,
            schema_hash=prompt.schema_hash,
        )

    async def decide(self, question: Question) -> Answer:
        prompt = compose(question)
        message = await self._create(self._request(question, prompt))
        decision, plan = _decision(message, prompt, question, self._most_tokens(question))
        return Answer(
            decision=decision,
            plan=plan,
            usage=self._usage(message),
            model=message.model,
            provenance=_provenance(message, prompt, question.state.run_id),
        )

    async def _create(self, request: dict[str, Any]) -> Message:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answer = await self._client.messages.create(**request)
        except TimeoutError as error:
            why = f"no answer within {self._settings.timeout_s:g} s"
            raise without_answer("model_timeout", why) from error
        except anthropic.APIStatusError as error:
            raise _refused(error) from error
        except anthropic.APIConnectionError as error:
            raise without_answer("model_unreachable", f"no connection: {error.__cause__ or error}") from error
        except (anthropic.AnthropicError, httpx2.HTTPError, ValueError) as error:
            raise without_answer("model_bad_answer", f"the answer cannot be read: {error}") from error
        if not isinstance(answer, Message) or answer.usage is None or answer.stop_reason is None:
            raise without_answer("model_bad_answer", "the answer is no complete message")
        return answer

    def _request(self, question: Question, prompt: Prompt) -> dict[str, Any]:
        phase = self._settings.of(question.phase)
        kept = self._kept(question.state)
        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": prompt.schema}}
        if phase.effort:
            output["effort"] = phase.effort
        request: dict[str, Any] = {
            "model": phase.model,
            "max_tokens": self._most_tokens(question),
            "system": [_block(prompt.rules), _block(prompt.skills, kept)],
            "messages": [{"role": "user", "content": _content(prompt, kept)}],
            "output_config": output,
        }
        if kept and self._settings.platform == "anthropic":
            request["diagnostics"] = {"previous_message_id": question.state.replies.get(prompt.schema_hash)}
        return request

    def _most_tokens(self, question: Question) -> int:
        most = self._settings.of(question.phase).max_tokens or self._settings.max_tokens
        asking = question.state.asking
        return min(2 * most, MOST_REPLY_TOKENS) if asking and asking.longer else most

    def _kept(self, state: RunState) -> dict[str, str]:
        """What marks a block up to which the prompt is to be cached; nothing when it is not."""
        return {} if self._settings.cache == "off" else {"type": "ephemeral", "ttl": self._ttl(state)}

    def _ttl(self, state: RunState) -> str:
        if self._settings.cache != "auto":
            return self._settings.cache
        seconds = sorted(record.seconds for record in state.completed[-OBSERVED_STEPS:])
        return "1h" if seconds and seconds[len(seconds) // 2] > SLOW_TOOLS_S else "5m"

    def _usage(self, message: Message) -> ModelUsage:
        usage, kept = message.usage, message.usage.cache_creation
        read_tokens, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        counts = TokenCounts(
            input=(usage.input_tokens or 0) + read_tokens + written,
            output=usage.output_tokens or 0,
            cache_read=read_tokens,
            cache_write=written,
            cache_write_1h=kept.ephemeral_1h_input_tokens if kept else 0,
        )
        return ModelUsage(
            input_tokens=counts.input,
            output_tokens=counts.output,
            cost_usd=self._prices.cost_usd(message.model, counts),
            cache_read_tokens=read_tokens,
            cache_write_tokens=written,
        )


def _block(text: str, kept: dict[str, str] | None = None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    return {**block, "cache_control": kept} if kept else block


def _content(prompt: Prompt, kept: dict[str, str]) -> list[dict[str, Any]]:
    """The user's blocks. Breakpoints: after the case and the newest note, and one between them in a long run."""
    last = len(prompt.notes) - 1
    marked = {last, last - NOTES_PER_BREAKPOINT} if last >= 0 else set()
    notes = [_block(note, kept if at in marked else None) for at, note in enumerate(prompt.notes)]
    return [_block(prompt.case, kept), *notes, _block(prompt.tail)]


def _decision(
    message: Message, prompt: Prompt, question: Question, most_tokens: int
) -> tuple[Decision, Plan | Unusable | None]:
    text = "".join(block.text for block in message.content or () if block.type == "text")
    match message.stop_reason:
        case "refusal":
            details = message.stop_details
            category = details.category if details and details.category else "refusal"
            return Refusal(category=category, explanation=(details.explanation or "") if details else ""), None
        case "model_context_window_exceeded":
            raise without_answer("prompt_too_long", "the prompt is longer than the model's window", "shrink")
        case "max_tokens":
            reason = f"the reply was cut at {most_tokens} tokens, thinking included"
            return Unusable(reason=reason, raw=text[:MOST_RAW], cut=True), None
    if not text:
        return Unusable(reason="the reply holds no text"), None
    return read(prompt.form, question.phase, text)


def _provenance(message: Message, prompt: Prompt, run_id: str) -> Provenance:
    why = message.diagnostics.cache_miss_reason if message.diagnostics else None
    miss = ""
    if why:
        missed = getattr(why, "cache_missed_input_tokens", None)
        miss = f"{why.type} ({missed} tokens)" if missed else str(why.type)
        log.warning("the prompt cache was missed", extra={"run_id": run_id, "why": miss, "reply": message.id})
    return Provenance(
        prompt_hash=prompt.template_hash,
        schema_hash=prompt.schema_hash,
        reply_id=message.id or "",
        stop_reason=message.stop_reason or "",
        cache_miss=miss,
    )


def _refused(error: anthropic.APIStatusError) -> ModelError:
    return by_status(
        error.status_code,
        code=error.error_code or error.type,
        message=error.api_message or error.message,
        retry_after_s=retry_after_s(error.response.headers.get("retry-after")),
        request_id=error.request_id,
    )
