"""Metrics of runs: endings, steps, attempts, model calls and their cost, continuations, and waits for people.

A moment costs microseconds on the thread of the turns. Durations come from the journal's instants, so they span a
restart; that of a model call which a restart interrupted is left out.
"""

import logging
from datetime import datetime

from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    RunStarted,
    TimerFired,
    ToolReturned,
)
from agent_service.core.facts import AttemptAnswered, CallPutOff, RetrySet, TaskFinished
from agent_service.core.state import RunState
from agent_service.core.waiting import Approval, Ended, NeedsPerson, Question, Status
from agent_service.metrics.model import CallMetrics, SpentMetrics
from agent_service.metrics.wakes import NONE, IncomingMetrics, OutgoingMetrics, known_class, outcome_of
from agent_service.run.moments import Moment
from groundwork.sqlite.group_commit import StoreMetrics
from groundwork.telemetry.metrics import Counter, Instruments


class GatheringMetrics:
    def __init__(self, instruments: Instruments) -> None:
        self._continuations = instruments.counter(
            "agentic.tool.continuations",
            "Results of tools that ask for more first, by what became of that",
            unit="{continuation}",
            attributes=("gen_ai.tool.name", "agentic.continuation.outcome"),
        )
        self._tasks = instruments.counter(
            "agentic.tool.tasks",
            "Tasks of steps that are over",
            unit="{task}",
            attributes=("gen_ai.tool.name", "agentic.tool.outcome", "error.type"),
        )

    def committed(self, moment: Moment) -> None:
        for fact in moment.facts:
            if isinstance(fact, TaskFinished):
                self._tasks.add(fact.tool, fact.status, known_class(fact.error_class) if fact.error_class else NONE)
            elif isinstance(fact, AttemptAnswered) and _asks_for_more(moment):
                self._continuations.add(fact.tool, _OUTCOMES.get(fact.status, "refused"))


def _asks_for_more(moment: Moment) -> bool:
    return isinstance(moment.event, ToolReturned) and moment.event.result.status == "continuation"


_OUTCOMES = {"continuation": "followed", "budget": "budget"}
_OF_TASKS = (TaskFinished, AttemptAnswered)


WAIT_SECONDS = (10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)


class PeopleMetrics:
    def __init__(self, instruments: Instruments) -> None:
        self._waits = instruments.histogram(
            "agentic.person.wait.duration",
            "From when a person was asked to when that was decided",
            attributes=("agentic.asks", "agentic.person.outcome"),
            bounds=WAIT_SECONDS,
        )
        self._reopened = instruments.counter(
            "agentic.run.reopened",
            "Escalated runs that an answer set going again, by what they had ended of",
            unit="{run}",
            attributes=("agentic.run.reason",),
        )

    def waited(self, moment: Moment, before: RunState) -> None:
        """The run has left the state that it was in before."""
        match before.waiting:
            case NeedsPerson(ask=Approval(), since=since):
                self._waits.record((moment.entry.at - since).total_seconds(), "approval", _ruled(before, moment.after))
            case NeedsPerson(ask=Question(), since=since):
                self._waits.record((moment.entry.at - since).total_seconds(), "question", _answered(moment))
            case Ended(stop=stop) if moment.reopened:
                self._reopened.add(stop.ending_class)


def _ruled(before: RunState, after: RunState) -> str:
    new = after.rulings[len(before.rulings) :]
    if after.ending_class == "approval_expired":
        return "expired"
    return new[-1].verdict if new else "void"


def _answered(moment: Moment) -> str:
    match moment.event:
        case TimerFired():
            return "expired"
        case CancelRequested():
            return "void"
    return "answered"


RUN_SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
TOOL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)

log = logging.getLogger(__name__)


class RunMetrics:
    """`provider` is who is asked for replies."""

    def __init__(self, instruments: Instruments, provider: str, retries: Counter) -> None:
        self._asked: dict[str, datetime] = {}
        """When the open question was first put."""
        self._made: dict[str, CallReserved] = {}
        self._entries = instruments.counter(
            "agentic.journal.entries", "Entries committed", unit="{entry}", attributes=("agentic.event",)
        )
        self._runs = _Runs(instruments)
        self._tools = _Tools(instruments)
        self._people = PeopleMetrics(instruments)
        self._gathering = GatheringMetrics(instruments)
        self._retries = retries
        self._calls = CallMetrics(instruments, provider)
        self._spent = SpentMetrics(instruments, provider)

    def committed(self, moment: Moment) -> None:
        try:
            self._entries.add(moment.entry.kind)
            match moment.event:
                case ToolReturned() | TimerFired():
                    self._answered(moment)
                case ModelReplied() as reply:
                    self._replied(moment, reply)
                case ModelUnavailable() as silence:
                    self._failed(moment, silence)
                case CallReserved() as reserved:
                    self._made[moment.after.run_id] = reserved
                case RunStarted() as started:
                    self._runs.began(moment.after, started.at)
            if not moment.kinds.isdisjoint(_OF_TASKS):
                self._gathering.committed(moment)
            self._follow(moment)
        except Exception:
            log.exception("not measured", extra={"run_id": moment.entry.run_id, "entry": moment.entry.seq})

    def _answered(self, moment: Moment) -> None:
        self._tools.answered(moment)
        for _ in moment.all(RetrySet) if RetrySet in moment.kinds else ():
            self._retries.add("tool", _error_of(moment))

    def _failed(self, moment: Moment, silence: ModelUnavailable) -> None:
        self._calls.failed(*self._call(moment), silence.error_class)
        if moment.first(CallPutOff):
            self._retries.add("llm", silence.error_class)

    def _replied(self, moment: Moment, reply: ModelReplied) -> None:
        put = moment.before.asking if moment.before else None
        phase = put.phase.value if put else NONE
        (_, took), asked = self._call(moment), self._asked.pop(moment.after.run_id, None)
        self._calls.answered(reply, phase, took, (reply.at - asked).total_seconds() if asked else None)
        self._spent.paid(reply, phase)

    def _call(self, moment: Moment) -> tuple[str, float | None]:
        run_id = moment.after.run_id
        made = self._made.pop(run_id, None)
        since = made.at if made else self._asked.get(run_id)
        return made.model if made else NONE, (moment.entry.at - since).total_seconds() if since else None

    def _follow(self, moment: Moment) -> None:
        run_id, before = moment.entry.run_id, moment.before
        if before and type(before.waiting) is not type(moment.after.waiting):
            self._people.waited(moment, before)
        if moment.after.calling:
            if run_id not in self._asked and not isinstance(moment.event, CallReserved):
                self._asked[run_id] = moment.entry.at
        elif moment.ended or moment.paused:
            self._asked.pop(run_id, None)
            self._made.pop(run_id, None)
            self._runs.stopped(moment)


class _Runs:
    def __init__(self, instruments: Instruments) -> None:
        state, reason = "agentic.run.state", "agentic.run.reason"
        self._queued = instruments.histogram("agentic.run.queue.duration", "From acceptance to the first turn")
        self._lasted = instruments.histogram(
            "agentic.run.duration", "From acceptance to the end", attributes=(state,), bounds=RUN_SECONDS
        )
        self._ended = instruments.counter(
            "agentic.run.completed",
            "Runs that ended, by their final state",
            unit="{run}",
            attributes=(state, reason),
            known=[("done", NONE), ("cancelled", "cancelled"), ("failed", "internal"), ("escalated", "in_doubt")],
        )
        self._paused = instruments.counter(
            "agentic.run.paused", "Runs that paused for a person", unit="{run}", attributes=(reason,)
        )

    def began(self, run: RunState, at: datetime) -> None:
        self._queued.record((at - run.accepted_at).total_seconds())

    def stopped(self, moment: Moment) -> None:
        run = moment.after
        if moment.paused:
            self._paused.add(run.ending_class or (run.ask.kind if run.ask else NONE))
            return
        reason = NONE if run.status is Status.DONE else run.ending_class
        self._ended.add(run.status.value, reason)
        self._lasted.record((moment.entry.at - run.accepted_at).total_seconds(), run.status.value)


class _Tools:
    def __init__(self, instruments: Instruments) -> None:
        self._attempts = instruments.histogram(
            "agentic.tool.duration",
            "One attempt of a step or a task, from its request to its result",
            attributes=("gen_ai.tool.name", "agentic.tool.outcome", "error.type"),
            bounds=TOOL_SECONDS,
        )

    def answered(self, moment: Moment) -> None:
        if AttemptAnswered not in moment.kinds:
            return
        sent = {pending.name: pending for pending in moment.before.pendings} if moment.before else {}
        for answer in moment.all(AttemptAnswered):
            if answer.status not in ("late", "refused") and (pending := sent.get(answer.name)):
                took, error = (moment.at - pending.requested_at).total_seconds(), _error_of(moment)
                outcome = "continuation" if answer.status == "continuation" else outcome_of(error)
                self._attempts.record(took, answer.tool, outcome, error)


def _error_of(moment: Moment) -> str:
    answer = moment.first(AttemptAnswered)
    if answer is None or answer.error is None:
        return NONE
    return known_class(answer.error.error_class)


class AgentMetrics:
    """`provider` is who is asked for replies of the model."""

    def __init__(self, provider: str) -> None:
        self.instruments = Instruments()
        self.store = StoreMetrics(self.instruments)
        self.incoming = IncomingMetrics(self.instruments)
        self.runs = RunMetrics(self.instruments, provider, self.incoming.retries)
        self.outgoing = OutgoingMetrics(self.instruments, self.incoming)
