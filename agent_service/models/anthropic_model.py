"""Claude, by Anthropic's SDK. Fills the port Model.

Rules: one request per call and no retries inside the SDK: every try is journaled and put off durably above it. Replies
are typed by `output_config.format` and validated by us: `messages.parse` would lose a reply that does not fit, and
forced tools are refused by current models. `temperature` and `thinking` are never sent: the effort steers.
"""

import asyncio
import logging
from typing import Any

import anthropic
import httpx2

from agent_service.core.events import ModelUsage, Provenance
from agent_service.core.phases import Decision, Phase, Plan, Refusal, Unusable
from agent_service.core.state import RunState
from agent_service.errors import ModelError
from agent_service.models.anthropic_reply import Reply, checked
from agent_service.models.call_bounds import estimated, reply_tokens
from agent_service.models.faults import by_status, cause_of, retry_after_s, without_answer
from agent_service.models.prices import Prices, TokenCounts
from agent_service.models.prompts.prompt import Prompt, compose
from agent_service.models.prompts.replies import MOST_RAW, read
from agent_service.models.settings import ModelSettings
from agent_service.ports import Answer, Estimate, Question

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
        kept_1h = self._ttl(question.state) == "1h"
        return estimated(question, self._settings, self._prices, kept_1h=kept_1h)

    async def decide(self, question: Question) -> Answer:
        prompt = compose(question)
        reply = await self._create(self._request(question, prompt))
        decision, plan = _decision(reply, prompt, question, reply_tokens(self._settings, question))
        return Answer(
            decision=decision,
            plan=plan,
            usage=self._usage(reply),
            model=reply.model,
            provenance=_provenance(reply, prompt, question.state.run_id),
        )

    async def check(self) -> tuple[str, ...]:
        """Ask for each model of the settings; says which will be retired. Raises ModelError when one cannot be used."""
        if self._settings.platform != "anthropic":  # the clouds do not offer the list of models
            return ()
        try:
            found = [await self._client.models.retrieve(name) for name in self._settings.names()]
        except anthropic.APIStatusError as error:
            raise self._refused(error) from error
        except anthropic.APIConnectionError as error:
            raise without_answer("model_unreachable", f"no connection: {cause_of(error)}") from error
        aging = (model for model in found if model.lifecycle != "active")
        return tuple(f"{model.id} is {model.lifecycle}, and retires at {model.retires_at}" for model in aging)

    async def _create(self, request: dict[str, Any]) -> Reply:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return checked(await self._client.messages.create(**request))
        except TimeoutError as error:
            why = f"no answer within {self._settings.timeout_s:g} s"
            raise without_answer("model_timeout", why) from error
        except anthropic.APITimeoutError as error:
            raise without_answer("model_timeout", f"no answer in time: {cause_of(error)}") from error
        except anthropic.APIStatusError as error:
            raise self._refused(error) from error
        except anthropic.APIConnectionError as error:
            raise without_answer("model_unreachable", f"no connection: {cause_of(error)}") from error
        except (anthropic.AnthropicError, httpx2.HTTPError, ValueError, RecursionError) as error:
            raise without_answer("model_bad_answer", f"the answer cannot be read: {error}") from error

    def _request(self, question: Question, prompt: Prompt) -> dict[str, Any]:
        phase = self._settings.of(question.phase)
        kept = self._kept(question)
        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": prompt.schema}}
        if phase.effort:
            output["effort"] = phase.effort
        request: dict[str, Any] = {
            "model": phase.model,
            "max_tokens": reply_tokens(self._settings, question),
            "system": [_block(prompt.rules), _block(prompt.skills, kept)],
            "messages": [{"role": "user", "content": _content(prompt, kept)}],
            "output_config": output,
        }
        if kept and self._settings.platform == "anthropic":
            request["diagnostics"] = {"previous_message_id": question.state.replies.get(prompt.schema_hash)}
        return request

    def _kept(self, question: Question) -> dict[str, str]:
        """What marks a block up to which the prompt is to be cached; nothing when it is not.

        The notes change with a compaction: nobody would read what its prompt left in the cache.
        """
        if self._settings.cache == "off" or question.phase is Phase.COMPACT:
            return {}
        return {"type": "ephemeral", "ttl": self._ttl(question.state)}

    def _ttl(self, state: RunState) -> str:
        if self._settings.cache != "auto":
            return self._settings.cache
        seconds = sorted(record.seconds for record in state.completed[-OBSERVED_STEPS:])
        return "1h" if seconds and seconds[len(seconds) // 2] > SLOW_TOOLS_S else "5m"

    def _refused(self, error: anthropic.APIStatusError) -> ModelError:
        """The body may be anything, as a proxy may have written it, and may repeat the key that it does not know."""
        code = next((said for said in (error.error_code, error.type) if isinstance(said, str)), None)
        said = error.api_message if isinstance(error.api_message, str) else error.message
        key = self._settings.api_key
        return by_status(
            error.status_code,
            code=code,
            message=said.replace(key.get_secret_value(), "***") if key else said,
            retry_after_s=retry_after_s(error.response.headers.get("retry-after")),
            request_id=error.request_id,
        )

    def _usage(self, reply: Reply) -> ModelUsage:
        usage, written = reply.usage, reply.usage.cache_creation
        cache_read, cache_write = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        counts = TokenCounts(
            input=usage.input_tokens + cache_read + cache_write,
            output=usage.output_tokens,
            cache_read=cache_read,
            cache_write=cache_write,
            cache_write_1h=(written.ephemeral_1h_input_tokens or 0) if written else 0,
        )
        return self._prices.usage(reply.model, counts)


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
    reply: Reply, prompt: Prompt, question: Question, most_tokens: int
) -> tuple[Decision, Plan | Unusable | None]:
    text = reply.text()
    match reply.stop_reason:
        case "refusal":
            details = reply.stop_details
            category, explanation = (details.category, details.explanation) if details else (None, None)
            return Refusal(category=category or "refusal", explanation=explanation or ""), None
        case "model_context_window_exceeded":
            raise without_answer("prompt_too_long", "the prompt is longer than the model's window", "shrink")
        case "max_tokens":
            reason = f"the reply was cut at {most_tokens} tokens, thinking included"
            return Unusable(reason=reason, raw=text[:MOST_RAW], cut=True), None
    if not text:
        return Unusable(reason="the reply holds no text"), None
    return read(prompt.form, question.phase, text)


def _provenance(reply: Reply, prompt: Prompt, run_id: str) -> Provenance:
    miss = reply.cache_miss()
    if miss:
        log.warning("the prompt cache was missed", extra={"run_id": run_id, "why": miss, "reply": reply.id})
    return Provenance(
        prompt_hash=prompt.template_hash,
        schema_hash=prompt.schema_hash,
        reply_id=reply.id,
        stop_reason=reply.stop_reason,
        cache_miss=miss,
    )
