"""OpenAI's models, and those of every server that speaks its API (Ollama, vLLM), by OpenAI's SDK. Fills the port Model.

Rules: one request per call and no retries inside the SDK: every try is journaled and put off durably above it. The
schema of the reply is asked for strictly; where a server does not keep to it, repairs do. Answers are read by models of
our own, because the SDK does not check them. Only OpenAI itself is sent what other servers may not know; they bound a
reply by `max_tokens`, which OpenAI's reasoning models refuse.
"""

import asyncio
import logging
from typing import Any

import httpx2
import openai

from agent_service.core.events import ModelUsage, Provenance
from agent_service.core.phases import Decision, Plan, Refusal, Unusable
from agent_service.errors import ModelError
from agent_service.models.call_bounds import estimated, reply_tokens
from agent_service.models.faults import by_status, cause_of, retry_after_s, without_answer
from agent_service.models.openai_messages import cached, plain
from agent_service.models.openai_reply import Reply, checked, unwrapped
from agent_service.models.prices import Prices, TokenCounts
from agent_service.models.prompts.prompt import Prompt, compose
from agent_service.models.prompts.replies import MOST_RAW, read
from agent_service.models.settings import ModelSettings
from agent_service.ports import Answer, Estimate, Question

OPENAI_HOST = "api.openai.com"
MOST_BYTES_PER_TOKEN = 8
"""More than any prompt of ours has: a server that counts fewer tokens has not read all of it."""

log = logging.getLogger(__name__)


def is_openai(url: httpx2.URL) -> bool:
    """Whether `url` is of OpenAI itself, in any of its regions."""
    return url.host == OPENAI_HOST or url.host.endswith(f".{OPENAI_HOST}")


class OpenAIModel:
    """One client for all runs of the process."""

    def __init__(self, client: openai.AsyncOpenAI, settings: ModelSettings, prices: Prices, *, at_openai: bool) -> None:
        """`client` has `max_retries=0`. `at_openai`: the server is OpenAI's own."""
        self._client = client
        self._settings = settings
        self._prices = prices
        self._at_openai = at_openai

    def estimate(self, question: Question) -> Estimate | None:
        return estimated(question, self._settings, self._prices)

    async def decide(self, question: Question) -> Answer:
        prompt = compose(question)
        reply = await self._create(self._request(question, prompt))
        _look_for_a_cut_prompt(reply, prompt, question.state.run_id)
        decision, plan = _decision(reply, prompt, question, reply_tokens(self._settings, question))
        provenance = Provenance(
            prompt_hash=prompt.template_hash,
            schema_hash=prompt.schema_hash,
            reply_id=reply.id,
            stop_reason=reply.stop_reason,
        )
        return Answer(decision=decision, plan=plan, usage=self._usage(reply), model=reply.model, provenance=provenance)

    async def check(self) -> tuple[str, ...]:
        """Ask for each model of the settings. Raises ModelError when one cannot be used."""
        try:
            for name in self._settings.names():
                await self._client.models.retrieve(name)
        except openai.APIStatusError as error:
            raise self._refused(error) from error
        except openai.APIConnectionError as error:
            raise without_answer("model_unreachable", f"no connection: {cause_of(error)}") from error
        return ()

    async def _create(self, request: dict[str, Any]) -> Reply:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answer = await self._client.chat.completions.with_raw_response.create(**request)
            return checked(answer.content)
        except TimeoutError as error:
            why = f"no answer within {self._settings.timeout_s:g} s"
            raise without_answer("model_timeout", why) from error
        except openai.APITimeoutError as error:
            raise without_answer("model_timeout", f"no answer in time: {cause_of(error)}") from error
        except openai.APIStatusError as error:
            raise self._refused(error) from error
        except openai.APIConnectionError as error:
            raise without_answer("model_unreachable", f"no connection: {cause_of(error)}") from error
        except (openai.OpenAIError, ValueError) as error:
            raise without_answer("model_bad_answer", f"the answer cannot be read: {error}") from error

    def _request(self, question: Question, prompt: Prompt) -> dict[str, Any]:
        phase = self._settings.of(question.phase)
        form = {"name": prompt.form.value, "strict": True, "schema": prompt.schema}
        request: dict[str, Any] = {
            "model": phase.model,
            "max_completion_tokens" if self._at_openai else "max_tokens": reply_tokens(self._settings, question),
            "response_format": {"type": "json_schema", "json_schema": form},
        }
        if phase.effort:
            request["reasoning_effort"] = phase.effort
        if self._at_openai:
            request["store"] = False
        if self._at_openai and self._settings.cache != "off":
            return request | cached(prompt, str(phase.model), question.state.run_id)
        return request | plain(prompt)

    def _refused(self, error: openai.APIStatusError) -> ModelError:
        said = error.body.get("message") if isinstance(error.body, dict) else error.body
        message = said if isinstance(said, str) and said else error.message
        return by_status(
            error.status_code,
            code=_code(error),
            message=message.replace(self._client.api_key, "***"),  # a proxy may repeat the key that it does not know
            retry_after_s=retry_after_s(error.response.headers.get("retry-after")),
            request_id=error.request_id,
        )

    def _usage(self, reply: Reply) -> ModelUsage:
        usage, kept = reply.usage, reply.usage.prompt_tokens_details
        counts = TokenCounts(
            input=usage.prompt_tokens,
            output=usage.completion_tokens,
            cache_read=(kept.cached_tokens or 0) if kept else 0,
            cache_write=(kept.cache_write_tokens or 0) if kept else 0,
        )
        return self._prices.usage(reply.model, counts)


def _look_for_a_cut_prompt(reply: Reply, prompt: Prompt, run_id: str) -> None:
    """Warn of it: Ollama drops without a word what its context has no room for, which may be the rules."""
    tokens, size = reply.usage.prompt_tokens, prompt.size()
    if tokens * MOST_BYTES_PER_TOKEN < size:
        why = "the model's server seems to have read only a part of the prompt: give it a longer context"
        log.warning(why, extra={"run_id": run_id, "tokens_read": tokens, "prompt_bytes": size})


def _decision(
    reply: Reply, prompt: Prompt, question: Question, most_tokens: int
) -> tuple[Decision, Plan | Unusable | None]:
    if reply.refusal:
        return Refusal(category="refusal", explanation=reply.refusal), None
    match reply.stop_reason:
        case "content_filter":
            return Refusal(category="content_filter"), None
        case "length":
            reason = f"the reply was cut at {most_tokens} tokens, thinking included"
            return Unusable(reason=reason, raw=reply.text[:MOST_RAW], cut=True), None
    if not reply.text:
        return Unusable(reason="the reply holds no text"), None
    return read(prompt.form, question.phase, unwrapped(reply.text))


def _code(error: openai.APIStatusError) -> str | None:
    """The cause's name. A used-up quota is told by the type, and some servers only repeat the status as code."""
    named = error.code and not error.code.isdigit()
    code = error.code if named and error.type != "insufficient_quota" else error.type
    return code if isinstance(code, str) else None  # a type is whatever the server wrote there
