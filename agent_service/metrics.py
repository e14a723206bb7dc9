"""Metrics of runs, model calls, attempts, waits for people, wakes and messages.

Durations of runs use the journal's instants, so they span a restart; a model call that a restart interrupted is left
out. Model calls have the names of OpenTelemetry's GenAI conventions. Error classes are a fixed list, since each is a
series.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal

from agent_service.core import events, facts
from agent_service.core.phases import Unusable
from agent_service.core.waiting import Approval, NeedsPerson, Question, Status
from agent_service.errors import LimitRefused, OverQuota, WakeConflict
from agent_service.run.journal import Commit
from groundwork.service.errors import Failure, GiveUp, TryAgain
from groundwork.sqlite.group_commit import StoreMetrics
from groundwork.telemetry.metrics import SECONDS, Attributes, Histogram, Instruments, RepeatMetrics
from groundwork.telemetry.settings import uses_latest_gen_ai

NONE = ""
"""Prometheus treats an empty label as a missing one."""
OTHER = "other"
TOOL_ERRORS = frozenset(
    (
        *("artifact_changed", "bad_continuation", "bad_output", "budget", "configuration", "dependency", "expired"),
        *("in_doubt", "invalid_arguments", "invalid_result", "not_allowed", "not_approved", "not_found", "overruled"),
        *("rate_limit", "storage_full", "timeout", "tool_error", "transient", "unavailable", NONE),
    )
)


OUTCOMES = {NONE: "ok", "not_allowed": "denied", "timeout": "timeout", "expired": "timeout"}
"""Outcome of an attempt by error class; others are an `error`."""
WAKE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
Transport = Literal["http", "nats", "stream"]
"""`POST /v1/wake`, a request to the micro service, or an `agentic.start` in the stream."""


class Waking:
    duplicate = False


class IncomingMetrics(RepeatMetrics):
    def __init__(self, instruments: Instruments) -> None:
        super().__init__(
            instruments,
            "What is done again: attempts of a step, model calls, messages, publishing",
            retries=[("turn", "try_again")],
            dedupe=["wake", "result_duplicate", "result_stale"],
        )
        text = "From a wake to its answer: the run is durable, or nothing is stored"
        of_a_wake = "agentic.wake.outcome", "agentic.transport", "error.type"
        self._wakes = instruments.histogram("agentic.wake.duration", text, *of_a_wake, bounds=WAKE_SECONDS)
        text, of_a_message = "A message from the bus, with the whole turn that it causes", "messaging.destination.name"
        self._handled = instruments.histogram("messaging.process.duration", text, of_a_message, "error.type")
        self.rejected = instruments.counter("agentic.messages.rejected", "Messages that became dead letters")

    @contextmanager
    def wake(self, transport: Transport) -> Iterator[Waking]:
        began, waking = time.perf_counter(), Waking()
        outcome, error = "error", "internal"
        try:
            yield waking
            outcome, error = "duplicate" if waking.duplicate else "accepted", NONE
            if waking.duplicate:
                self.dedupe.add("wake")
        except Exception as raised:
            known = [outcome for kind, outcome in _OUTCOMES if isinstance(raised, kind)]
            refused_as = getattr(raised, "code", "")  # of an ApiError
            outcome, error = ("rejected", refused_as) if refused_as else (*known, (outcome, error))[0]
            raise
        finally:
            self._wakes.record(time.perf_counter() - began, outcome, transport, error)

    def handled(self, subject: str, seconds: float, raised: BaseException | None) -> None:
        error = NONE if raised is None else "refused" if isinstance(raised, GiveUp) else "internal"
        error = "try_again" if isinstance(raised, TryAgain) else error
        if isinstance(raised, Exception) and error != "refused":
            self.retries.add("turn", error)
        self._handled.record(seconds, subject, error)


_OUTCOMES = (
    (WakeConflict, ("rejected", "wake_id_taken")),
    (LimitRefused, ("rejected", "not_granted")),
    (OverQuota, ("rejected", "over_quota")),
    (TryAgain, ("error", "try_again")),
    (Failure, ("error", "broken")),
)


WAIT_SECONDS = (10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
RUN_SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
TOOL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
CALL_SECONDS = tuple(0.01 * 2**n for n in range(14))
TOKENS = tuple(float(4**n) for n in range(14))
"""Both bounds are those of the conventions."""
CHAT = "chat"
OPERATION, PROVIDER, MODEL = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"
PHASE, TOKEN_TYPE, TOOL, ERROR = "agentic.phase", "gen_ai.token.type", "gen_ai.tool.name", "error.type"
STATE, REASON = "agentic.run.state", "agentic.run.reason"
_CONTINUED = {"continuation": "followed", "budget": "budget"}
_ANSWERED: dict[type[Any], str] = {events.TimerFired: "expired", events.CancelRequested: "void"}

_OF_CALLS, _OF_TOOLS_USED = (OPERATION, PROVIDER, MODEL), (TOOL, "agentic.tool.outcome", ERROR)
_OF_CONTINUATIONS, _OF_WAITS = (TOOL, "agentic.continuation.outcome"), ("agentic.asks", "agentic.person.outcome")
_COUNTERS = {
    "entries": ("agentic.journal.entries", "Entries committed", "{entry}", ("agentic.event",)),
    "ended": ("agentic.run.completed", "Runs that ended, by their final state", "{run}", (STATE, REASON)),
    "paused": ("agentic.run.paused", "Runs that paused for a person", "{run}", (REASON,)),
    "reopened": ("agentic.run.reopened", "Escalated runs that an answer set going again", "{run}", (REASON,)),
    "continued": ("agentic.tool.continuations", "Results that ask for more first", "{continuation}", _OF_CONTINUATIONS),
    "late": ("agentic.results.late", "Tool results that came after the end of their run", "", ()),
    "tasks": ("agentic.tool.tasks", "Tasks of steps that are over", "{task}", _OF_TOOLS_USED),
    "unusable": ("agentic.llm.unusable", "Replies that were no valid decision", "{reply}", (MODEL,)),
    "tokens": ("agentic.llm.tokens", "Tokens; those of `input` are all of the prompt", "{token}", (MODEL, TOKEN_TYPE)),
    "cost": ("agentic.llm.cost", "Spent on model calls, in USD", "{USD}", (MODEL, PHASE)),
    "unpriced": ("agentic.llm.unpriced", "Replies without a known price", "{reply}", (MODEL,)),
}
_KNOWN: dict[str, list[Attributes]] = {
    "ended": [("done", NONE), ("cancelled", "cancelled"), ("failed", "internal"), ("escalated", "in_doubt")]
}
_DURATIONS = {
    "queued": ("agentic.run.queue.duration", "From acceptance to the first turn", (), SECONDS),
    "lasted": ("agentic.run.duration", "From acceptance to the end", (STATE,), RUN_SECONDS),
    "waited": ("agentic.person.wait.duration", "From when a person was asked to the decision", _OF_WAITS, WAIT_SECONDS),
    "attempt": ("agentic.tool.duration", "From a request to its result", _OF_TOOLS_USED, TOOL_SECONDS),
    "phase": ("agentic.phase.duration", "From a question to the reply, with all tries", (PHASE,), CALL_SECONDS),
    "call": ("gen_ai.client.operation.duration", "One model call", (*_OF_CALLS, ERROR), CALL_SECONDS),
}
_LATEST = {"gen_ai.client.operation.duration": "gen_ai.client.inference.duration"}


class AgentMetrics:
    def __init__(self, provider: str) -> None:
        self.instruments = instruments = Instruments()
        self.store = StoreMetrics(instruments)
        self.incoming = IncomingMetrics(instruments)
        self._of_a_call = CHAT, provider
        self._asked: dict[str, datetime] = {}
        """First instant of a run's open question."""
        self._made: dict[str, facts.CallReserved] = {}
        newer = _LATEST if uses_latest_gen_ai() else {}
        self._count = {
            key: instruments.counter(name, text, *attributes, unit=unit, known=_KNOWN.get(key, ()))
            for key, (name, text, unit, attributes) in _COUNTERS.items()
        }
        self._took = {
            key: instruments.histogram(newer.get(name, name), text, *attributes, bounds=bounds)
            for key, (name, text, attributes, bounds) in _DURATIONS.items()
        }
        self._usage = _usage(instruments)
        self._observers: dict[type[Any], Callable[[Commit, Any], None]] = {
            events.RunStarted: self._started,
            events.ModelReplied: self._replied,
            events.ModelUnavailable: self._fell_silent,
            facts.CallAsked: self._call_asked,
            facts.CallReserved: self._call_reserved,
            facts.AttemptAnswered: self._answered,
            facts.RetrySet: self._retry_set,
            facts.RequestFinished: self._finished,
            facts.PersonAsked: self._paused,
            facts.RunReopened: self._reopened,
            facts.RunEnded: self._ended,
        }
        """By the event, and by each fact of an entry."""

    def committed(self, change: Commit) -> None:
        before, run = change.before, change.state
        self._count["entries"].add(change.entry.kind)
        for one in (change.event, *change.facts):
            if observe := self._observers.get(type(one)):
                observe(change, one)
        if before and isinstance(before.waiting, NeedsPerson) and not isinstance(run.waiting, NeedsPerson):
            self._waited(change, before.waiting)

    def forget(self, run_id: str) -> None:
        """The run rests, or goes on at another agent."""
        self._asked.pop(run_id, None)
        self._made.pop(run_id, None)

    def _started(self, change: Commit, event: events.RunStarted) -> None:
        self._took["queued"].record((event.at - change.state.accepted_at).total_seconds())

    def _call_asked(self, change: Commit, _: facts.CallAsked) -> None:
        self._asked.setdefault(change.entry.run_id, change.entry.at)

    def _call_reserved(self, change: Commit, reserved: facts.CallReserved) -> None:
        self._made[change.entry.run_id] = reserved

    def _replied(self, change: Commit, reply: events.ModelReplied) -> None:
        put = change.before.open_call if change.before else None
        phase, model, usage = put.phase.value if put else NONE, reply.model, reply.usage
        self._called(change, NONE, model)
        if asked := self._asked.pop(change.entry.run_id, None):
            self._took["phase"].record((reply.at - asked).total_seconds(), phase)
        if isinstance(reply.decision, Unusable) or isinstance(reply.plan, Unusable):
            self._count["unusable"].add(model)
        if usage.cost_usd:
            self._count["cost"].add(model, phase, by=usage.cost_usd)
        elif usage.cost_usd is None:
            self._count["unpriced"].add(model)
        if not usage.input_tokens:
            return
        for (histogram, *which), tokens in zip(self._usage, (usage.input_tokens, usage.output_tokens), strict=True):
            histogram.record(tokens, *self._of_a_call, model, *which)
        for kind in ("input", "output", "cache_read", "cache_write"):
            self._count["tokens"].add(model, kind, by=getattr(usage, f"{kind}_tokens"))

    def _fell_silent(self, change: Commit, silence: events.ModelUnavailable) -> None:
        self._called(change, silence.error_class)
        if facts.CallPostponed in change.kinds:
            self.incoming.retries.add("llm", silence.error_class)

    def _called(self, change: Commit, error: str, model: str = NONE) -> None:
        """Skips a call whose start was before a restart."""
        run_id, at = change.entry.run_id, change.entry.at
        made = self._made.pop(run_id, None)
        if since := made.at if made else self._asked.get(run_id):
            model = model or (made.model if made else NONE)
            self._took["call"].record((at - since).total_seconds(), *self._of_a_call, model, error)

    def _answered(self, change: Commit, answer: facts.AttemptAnswered) -> None:
        tool, status, error = answer.tool, answer.status, _known(answer.error.error_class) if answer.error else NONE
        if isinstance(change.event, events.ToolReturned) and change.event.result.status == "continuation":
            self._count["continued"].add(tool, _CONTINUED.get(status, "refused"))
        if status == "late":
            self._count["late"].add()
        for pending in change.before.pendings if change.before and status not in ("late", "refused") else ():
            if pending.name == answer.name:
                outcome = "continuation" if status == "continuation" else OUTCOMES.get(error, "error")
                lasted_s = (change.entry.at - pending.requested_at).total_seconds()
                self._took["attempt"].record(lasted_s, tool, outcome, error)

    def _retry_set(self, change: Commit, retry: facts.RetrySet) -> None:
        answers = (one for one in change.all(facts.AttemptAnswered) if one.name == retry.pending.name)
        error = next((answer.error for answer in answers), None)
        self.incoming.retries.add("tool", _known(error.error_class) if error else NONE)

    def _finished(self, _: Commit, finished: facts.RequestFinished) -> None:
        if finished.task:
            self._count["tasks"].add(finished.tool, finished.status, _known(finished.error_class))

    def _paused(self, change: Commit, asked: facts.PersonAsked) -> None:
        self._count["paused"].add(change.state.ending_class or asked.ask.kind)
        self.forget(change.entry.run_id)

    def _reopened(self, _: Commit, reopened: facts.RunReopened) -> None:
        self._count["reopened"].add(reopened.ending_class)

    def _ended(self, change: Commit, ended: facts.RunEnded) -> None:
        run, status = change.state, ended.status
        self._count["ended"].add(status.value, NONE if status is Status.DONE else run.ending_class)
        self._took["lasted"].record((change.entry.at - run.accepted_at).total_seconds(), status.value)
        self.forget(run.run_id)

    def _waited(self, change: Commit, waited: NeedsPerson) -> None:
        ruled, outcome = change.first(facts.Ruled), ""
        if isinstance(waited.ask, Approval):
            outcome = ruled.verdict if ruled else "void"
        elif isinstance(waited.ask, Question):
            outcome = _ANSWERED.get(type(change.event), "answered")
        if outcome:
            lasted_s = (change.entry.at - waited.since).total_seconds()
            self._took["waited"].record(lasted_s, waited.ask.kind, outcome)


def _known(error_class: str) -> str:
    return error_class if error_class in TOOL_ERRORS else OTHER


def _usage(instruments: Instruments) -> tuple[tuple[Histogram, *tuple[str, ...]], ...]:
    """Histograms of input and output tokens, with the token type if they are one histogram."""

    def histogram(name: str, *kind: str) -> Histogram:
        text = "Tokens of one model call"
        return instruments.histogram(name, text, *_OF_CALLS, *kind, unit="{token}", bounds=TOKENS)

    if uses_latest_gen_ai():
        read, written = (f"gen_ai.client.inference.operation.{way}_tokens" for way in ("input", "output"))
        return (histogram(read),), (histogram(written),)
    both = histogram("gen_ai.client.token.usage", TOKEN_TYPE)
    return (both, "input"), (both, "output")
