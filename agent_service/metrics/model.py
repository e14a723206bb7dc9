"""Metrics of model calls, by the GenAI conventions of OpenTelemetry where they have a name."""

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Unusable
from agent_service.metrics.wakes import NONE
from groundwork.telemetry.metrics import Histogram, Instruments
from groundwork.telemetry.names import gen_ai

SECONDS = tuple(0.01 * 2**n for n in range(14))
TOKENS = tuple(float(4**n) for n in range(14))
"""Bounds of the conventions, both of them."""
CHAT = "chat"
OPERATION, PROVIDER, MODEL = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"
PHASE, TOKEN_TYPE = "agentic.phase", "gen_ai.token.type"


class CallMetrics:
    def __init__(self, instruments: Instruments, provider: str) -> None:
        self._provider = provider
        self._phases = instruments.histogram(
            "agentic.phase.duration",
            "From a question to the model's reply, with all waits and tries",
            attributes=(PHASE,),
            bounds=SECONDS,
        )
        self._calls = instruments.histogram(
            gen_ai().duration,
            "One model call",
            attributes=(OPERATION, PROVIDER, MODEL, "error.type"),
            bounds=SECONDS,
        )
        self._unusable = instruments.counter(
            "agentic.llm.unusable", "Replies that were no valid decision", unit="{reply}", attributes=(MODEL,)
        )

    def answered(self, reply: ModelReplied, phase: str, call_s: float | None, phase_s: float | None) -> None:
        """Null is not known, after a restart."""
        if call_s is not None:
            self._calls.record(call_s, CHAT, self._provider, reply.model, NONE)
        if phase_s is not None:
            self._phases.record(phase_s, phase)
        if isinstance(reply.decision, Unusable) or isinstance(reply.plan, Unusable):
            self._unusable.add(reply.model)

    def failed(self, model: str, call_s: float | None, error_class: str) -> None:
        if call_s is not None:
            self._calls.record(call_s, CHAT, self._provider, model, error_class)


class SpentMetrics:
    def __init__(self, instruments: Instruments, provider: str) -> None:
        self._of_a_call = CHAT, provider
        self._usage = _usage(instruments)
        told = "Tokens; those of `input` are all of the prompt, also what came from a cache or went into it"
        self._tokens = instruments.counter("agentic.llm.tokens", told, unit="{token}", attributes=(MODEL, TOKEN_TYPE))
        spent, unknown = "Spent on model calls, in USD", "Replies without a known price, which the cost leaves out"
        self._cost = instruments.counter("agentic.llm.cost", spent, unit="{USD}", attributes=(MODEL, PHASE))
        self._unpriced = instruments.counter("agentic.llm.unpriced", unknown, unit="{reply}", attributes=(MODEL,))

    def paid(self, reply: ModelReplied, phase: str) -> None:
        if reply.usage.cost_usd:
            self._cost.add(reply.model, phase, by=reply.usage.cost_usd)
        elif reply.usage.cost_usd is None:
            self._unpriced.add(reply.model)
        if reply.usage.input_tokens:
            self._count(reply)

    def _count(self, reply: ModelReplied) -> None:
        usage, model = reply.usage, reply.model
        for (histogram, *kind), tokens in zip(self._usage, (usage.input_tokens, usage.output_tokens), strict=True):
            histogram.record(tokens, *self._of_a_call, model, *kind)
        self._tokens.add(model, "input", by=usage.input_tokens)
        self._tokens.add(model, "output", by=usage.output_tokens)
        self._tokens.add(model, "cache_read", by=usage.cache_read_tokens)
        self._tokens.add(model, "cache_write", by=usage.cache_write_tokens)


def _usage(instruments: Instruments) -> tuple[tuple[Histogram, *tuple[str, ...]], ...]:
    """The histograms of input and of output tokens, and the type where both are one."""
    chosen, of_a_call = gen_ai(), (OPERATION, PROVIDER, MODEL)

    def histogram(name: str, *kind: str) -> Histogram:
        text = "Tokens of one model call"
        return instruments.histogram(name, text, unit="{token}", attributes=(*of_a_call, *kind), bounds=TOKENS)

    if chosen.input_tokens == chosen.output_tokens:
        both = histogram(chosen.input_tokens, TOKEN_TYPE)
        return (both, "input"), (both, "output")
    return (histogram(chosen.input_tokens),), (histogram(chosen.output_tokens),)
