"""Model call, the same for every provider: compose → estimate → ask → read → settle, or a ModelError.

One request per call, without retries of the SDK: retries are durable and belong to the run. There is no tokenizer: the
first prompt of a run is estimated by its bytes, later ones by the provider's counts; the surplus is given back at the
end.
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from functools import partial
from typing import Any

import httpx2

from agent_service.core.events import ModelReplied, ModelUsage, Provenance
from agent_service.core.phases import ModelRefusal
from agent_service.core.state import RunState
from agent_service.core.waiting import CallReserve
from agent_service.errors import ModelError
from agent_service.models import transport
from agent_service.models.estimates import (
    USUAL_BYTES_PER_TOKEN,
    lost_prompt_tokens,
    max_prompt_tokens,
    min_reply_tokens,
)
from agent_service.models.prompts.prompt import Prompt, compose
from agent_service.models.prompts.validation import Read, read, read_cut
from agent_service.models.settings import MOST_REPLY_TOKENS, ModelSettings
from agent_service.run.ports import ModelCall, ModelQuestion
from groundwork.service.program import loaded
from groundwork.service.secret import masked
from schemas.values import dataclass, replace

GRAMMAR_TOO_LARGE = "compiled grammar is too large"
"""Anthropic's message, with 400, for a schema that it cannot enforce."""
MOST_WISHES = 2
"""What a server may refuse of a request that can be made without it: the grammar, and the usage in a stream."""
MOST_BYTES_PER_TOKEN = 32
"""A longer reply is cut here: a server that knows no limit would go on for ever."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`reply_tokens`: upper bound, thinking included."""

    question: ModelQuestion
    prompt: Prompt
    model: str
    reserve: CallReserve

    @property
    def reply_tokens(self) -> int:
        return self.reserve.reply_tokens

    @property
    def grammar(self) -> tuple[str, str]:
        """Names the grammar that the provider makes of the schema."""
        return self.model, self.prompt.schema_hash


@dataclass(slots=True, kw_only=True)
class Reply:
    """Reply so far. `answered`: the provider took the request. `texts`: without thinking. `shown`: bytes of text and
    visible thinking. `hidden`: thinking is in progress unseen. `usage`: None if the provider sends none. `cached_1h`:
    tokens written to a cache of one hour. `stop_reason`: empty until the end. `message`: Anthropic's other fields.
    """

    answered: bool = False
    id: str = ""
    model: str = ""
    texts: list[str] = field(default_factory=list)
    shown: int = 0
    hidden: bool = False
    stop_reason: str = ""
    usage: ModelUsage | None = None
    cached_1h: int = 0
    refusal: ModelRefusal | None = None
    cache_miss: str = ""
    message: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add_text(self, text: str) -> None:
        self.texts.append(text)
        self.add_thinking(text)

    def add_thinking(self, text: str) -> None:
        self.shown += len(text.encode("utf-8", "replace"))

    def check(self) -> None:
        """Raises ValueError for an incomplete reply."""
        for name in ("id", "model", "stop_reason"):
            if not getattr(self, name) or not isinstance(getattr(self, name), str):
                raise ValueError(f"it is no complete reply: {name}")


def count(usage: Any, name: str, missing: int | None = None) -> int:
    """A number of tokens. Raises ValueError if it is none."""
    found = usage.get(name) if isinstance(usage, Mapping) else None
    found = missing if found is None else found
    if not isinstance(found, int) or found < 0:
        raise ValueError(f"it is no complete reply: usage.{name}")
    return found


def bytes_of(prompt: Prompt) -> int:
    return prompt.size() + len(json.dumps(prompt.schema))


def usage_so_far(reply: Reply, request: Request) -> ModelUsage:
    """Usage of a call; estimated where the provider sends none."""
    state, model = request.question.state, request.model
    used = reply.usage or ModelUsage(input_tokens=lost_prompt_tokens(state, model, bytes_of(request.prompt)))
    hidden = min(request.reply_tokens, min_reply_tokens(state)) if reply.hidden else 0
    return replace(used, output_tokens=max(used.output_tokens, reply.shown // USUAL_BYTES_PER_TOKEN, hidden))


class LanguageModel(ABC):
    sdk: Any
    """Module of the SDK. Both SDKs come from one generator and share the names of errors."""
    is_free, verifies = False, True
    hides_thinking = False
    """True if a stream does not say whether the model thinks."""

    def __init__(self, client: Any, settings: ModelSettings, price_list: str | None) -> None:
        """`client`: one of the SDK's, with `max_retries=0`."""
        self._client = client
        self._settings = settings
        self._price_list = price_list
        self._refused: set[tuple[str, str]] = set()
        """Grammars that the provider cannot enforce."""

    @abstractmethod
    def ask(self, request: Request) -> AbstractAsyncContextManager[Any]:
        """The SDK's streaming response to one request."""

    @abstractmethod
    def take(self, event: dict[str, Any], reply: Reply) -> None:
        """Adds an event of the stream. Raises ValueError."""

    @abstractmethod
    def end(self, request: Request, reply: Reply) -> None:
        """Checks a reply after its last event. Raises ValueError if its usage is missing."""

    @abstractmethod
    def error_details(self, error: Any) -> tuple[str | None, str]:
        """The provider's code and message of an APIStatusError."""

    def cached_1h(self, state: RunState) -> bool:  # noqa: ARG002 - for caches whose lifetime depends on it
        return False

    def note_on(self, found: Any) -> str:
        """Note for the operator on a model, such as its retirement. Raises ValueError for an answer that is none."""
        if not isinstance(getattr(found, "id", None), str):
            raise ValueError(f"it is no model, but {str(found)!r}")  # noqa: TRY004 - what a server sent
        return ""

    def prepare(self, question: ModelQuestion) -> ModelCall:
        prompt = compose(question)
        model, reserve = self._estimate(question, prompt)
        request = Request(question=question, prompt=prompt, model=model, reserve=reserve)
        reserved = question.reserves(model, reserve, prompt.template_hash, prompt.schema_hash)
        return ModelCall(reserved=reserved, make=partial(self._answer, request))

    async def check(self) -> tuple[str, ...]:
        names = self._settings.names() if self._settings.platform == "anthropic" else ()
        try:
            notes = [self.note_on(await self._client.models.retrieve(name)) for name in names]
        except (self.sdk.APIStatusError, self.sdk.APIConnectionError, ValueError) as error:
            raise self._fault(error) from error
        return tuple(filter(None, notes))

    async def _answer(self, request: Request) -> ModelReplied:
        reply = await self._ask(request)
        decision, plan = _decision(reply, request)
        used = reply.usage or usage_so_far(reply, request)
        provenance = Provenance(
            prompt_hash=request.prompt.template_hash,
            schema_hash=request.prompt.schema_hash,
            reply_id=reply.id,
            stop_reason=reply.stop_reason,
            cache_miss=reply.cache_miss,
            provider=self._settings.known_as(),
        )
        return ModelReplied(
            at=request.question.now,
            call=request.question.call,
            model=reply.model,
            usage=replace(used, cost_usd=self._paid(request, reply, used)),
            decision=decision,
            plan=plan,
            words=request.question.state.words,
            provenance=provenance,
            prompt_bytes=bytes_of(request.prompt) if reply.usage else 0,
        )

    async def _ask(self, request: Request) -> Reply:
        """Raises ModelError."""
        reply = Reply(hidden=self.hides_thinking)
        try:
            await self._stream(request, reply)
            reply.check()
        except Exception as error:
            fault = self._fault(error)
            unread = reply.answered and not isinstance(error, transport.SaidError)
            fault.lost = request.reserve.if_lost if unread or transport.was_made(error) else None
            if reply.usage or reply.shown:
                used = usage_so_far(reply, request)
                fault.lost = used.input_tokens + used.output_tokens, self._paid(request, reply, used)
            raise fault from error
        return reply

    async def _stream(self, request: Request, reply: Reply) -> None:
        refusals = 0
        while True:
            try:
                async with self.ask(request) as answer:
                    reply.answered = "html" not in answer.headers.get("content-type", "")  # a proxy's page is free
                    async for event in transport.events(answer):
                        self.take(event, reply)
                        if reply.shown > request.reply_tokens * MOST_BYTES_PER_TOKEN:
                            reply.stop_reason = "length"
                            reply.usage = reply.usage and usage_so_far(reply, request)
                            return None
                return self.end(request, reply)
            except (self.sdk.BadRequestError, self.sdk.UnprocessableEntityError) as error:
                refusals += 1
                if refusals > MOST_WISHES or not self.does_without(request, error):
                    raise

    def enforces(self, request: Request) -> bool:
        """True if the provider is to hold the reply to its schema."""
        return request.grammar not in self._refused

    def does_without(self, request: Request, error: Any) -> bool:
        """True if the request can be made again without what the provider refuses of it. Another call that was under
        way may have noted that already.
        """
        if GRAMMAR_TOO_LARGE not in self.error_details(error)[1].lower():
            return False
        if self.enforces(request):
            self._refused.add(request.grammar)
            log.warning("the provider finds the grammar of the replies too large: it is asked without one from now on")
        return True

    def _fault(self, error: Exception) -> ModelError:
        sdk, secrets = self.sdk, self._settings.secrets()
        if isinstance(error, transport.SaidError):
            return transport.by_status(error.status, code=error.kind, message=masked(str(error), secrets))
        if isinstance(error, sdk.APIStatusError):
            code, message = self.error_details(error)
            return transport.by_status(
                error.status_code,
                code=code,
                message=masked(message, secrets),
                retry_after_s=transport.retry_after_s(error.response.headers.get("retry-after")),
                request_id=error.request_id,
            )
        if isinstance(error, sdk.APITimeoutError | httpx2.TimeoutException):
            why = f"nothing came for {self._settings.timeout_s:g} s: {transport.cause_of(error)}"
            return ModelError("try_again", "model_timeout", why)
        if isinstance(error, sdk.APIConnectionError | httpx2.TransportError):
            why = f"no connection: {transport.cause_of(error)}"[: transport.MOST_MESSAGE]
            return ModelError("try_again", "model_unreachable", why)
        if isinstance(error, ValueError | RecursionError):
            why = masked(f"the answer cannot be read: {error}", secrets)[: transport.MOST_MESSAGE]
            return ModelError("try_again", "model_bad_answer", why)
        log.error("a model call broke", exc_info=error)
        why = f"{type(error).__name__} in the adapter: the agent's log has more"
        return ModelError("try_again", "model_broken", why)

    def _estimate(self, question: ModelQuestion, prompt: Prompt) -> tuple[str, CallReserve]:
        """Model, and upper bounds of a call in tokens and USD: the whole prompt, and the longest reply."""
        phase, state, size = self._settings.of(question.phase), question.state, bytes_of(prompt)
        model, usual = str(phase.model), phase.max_tokens or self._settings.max_tokens
        asking, cached_1h = state.open_call, self.cached_1h(state)
        tokens = max_prompt_tokens(state, model, size)

        price = self._settings.price
        writes_cost_less = price is not None and price.cache_write is not None and price.cache_write < price.input

        def cost_usd(reply: int, prompt: int = tokens) -> float | None:
            written = 0 if writes_cost_less else prompt
            most = ModelUsage(input_tokens=prompt, output_tokens=reply, cache_write_tokens=written)
            return self._cost_usd(model, most, prompt if cached_1h else 0)

        if asking and asking.longer:
            usual = min(2 * usual, MOST_REPLY_TOKENS)
        reply = _affordable(state, tokens, usual, cost_usd)
        lost, reply_tokens_lost = lost_prompt_tokens(state, model, size), min(reply, min_reply_tokens(state))
        reserve = CallReserve(
            tokens=tokens + reply,
            cost_usd=cost_usd(reply),
            reply_tokens=reply,
            if_lost=(lost + reply_tokens_lost, cost_usd(reply_tokens_lost, lost)),
        )
        return model, reserve

    def _paid(self, request: Request, reply: Reply, used: ModelUsage) -> float | None:
        """By the name that the provider gives the model; proxies have names of their own for it."""
        named = self._cost_usd(reply.model, used, reply.cached_1h)
        return self._cost_usd(request.model, used, reply.cached_1h) if named is None else named

    def _cost_usd(self, model: str, used: ModelUsage, cached_1h: int = 0) -> float | None:
        """By the settings or genai-prices, imported late: a quarter of a second of CPU. None if the price is not known.
        `cached_1h`: tokens written to a cache of one hour instead of minutes.
        """
        if price := self._settings.price:
            read = price.input if price.cache_read is None else price.cache_read
            write = price.input if price.cache_write is None else price.cache_write
            plain = max(0, used.input_tokens - used.cache_read_tokens - used.cache_write_tokens)
            cached = used.cache_read_tokens * read + used.cache_write_tokens * write
            return (plain * price.input + cached + used.output_tokens * price.output) / MILLION
        if self._price_list is None:
            return None
        usage = loaded("genai_prices:Usage")(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            cache_write_1h_tokens=cached_1h or None,
        )
        try:
            return float(loaded("genai_prices:calc_price")(usage, model, provider_id=self._price_list).total_price)
        except (LookupError, ValueError):
            return None


def _affordable(state: RunState, prompt: int, usual: int, cost_usd: Callable[[int], float | None]) -> int:
    """Shortens the reply where the budget is nearly spent, so that the rest of it can still be used."""
    limits, spent = state.brief.limits, state.spent
    rooms = [usual]
    if limits.max_tokens is not None:
        rooms.append(limits.max_tokens - spent.tokens - spent.lost_tokens - prompt)
    paid, least, most = spent.paid, cost_usd(0), cost_usd(usual)
    if limits.max_cost_usd is not None and paid is not None and least is not None and most is not None and most > least:
        rooms.append(int(usual * (limits.max_cost_usd - paid - least) / (most - least)))
    return max(min(rooms), min(usual, min_reply_tokens(state)))


MILLION = 1_000_000
CUT = frozenset({"length", "max_tokens", "model_context_window_exceeded"})


def _decision(reply: Reply, request: Request) -> Read:
    if reply.refusal:
        return reply.refusal, None
    if reply.stop_reason in CUT:
        full = "window" in reply.stop_reason
        bound = "the end of the model's window" if full else f"{request.reply_tokens} tokens"
        return read_cut(reply.text, bound), None
    return read(request.question, reply.text)
