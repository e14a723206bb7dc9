"""The diagnosis of a run: what it waits for, where its message is on the bus, and what to do about it.

Nothing is guessed: a verdict names what was found, and says what could not be looked at.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal

from agent_service.core.attempts import Pending
from agent_service.core.state import RunState
from agent_service.core.tools.grants import run_id_of
from agent_service.core.waiting import Status
from agent_service.history.plain import OfRun, View, instant
from agent_service.history.waiting_for import WaitReason, executor_of, waiting_for
from agent_service.history.words import attempt_of
from agent_service.run.asks import Remedy, remedy
from agent_service.run.ports import Dismissal
from agent_service.views.inbox import DeadLetter
from agent_service.views.run import reopens_until
from schemas.status import WaitingCall
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A consumer that a message is for. `stands`: it was not delivered yet, is in hand, or was dealt with.

    `before` counts the messages that are delivered before this one; `in_hand`, `redelivered` and `fetches` are of the
    consumer as a whole: JetStream does not tell of a single message how often it was delivered.
    """

    consumer: str
    stands: Literal["ahead", "in_hand", "done"]
    before: int
    in_hand: int
    redelivered: int
    fetches: int

    def __str__(self) -> str:
        match self.stands:
            case "ahead":
                fetching = f"{self.fetches} fetches wait for messages" if self.fetches else "no fetch is open"
                return f"consumer {self.consumer} has not delivered it: {self.before} are before it, {fetching}"
            case "done":
                return f"consumer {self.consumer} has dealt with it"
        again = f", {self.redelivered} of them delivered more than once" if self.redelivered else ""
        return f"consumer {self.consumer} has delivered it, with {self.in_hand} in hand{again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """A message in a stream."""

    stream: str
    seq: int
    at: datetime
    holders: tuple[Holder, ...] = ()

    def __str__(self) -> str:
        held = "; ".join(map(str, self.holders)) or "no consumer takes its subject"
        return f"message {self.seq} of {self.stream}, stored {instant(self.at)}; {held}"


SERVE = Remedy(text="start the executor", command="ductile-gateway serve")
GO_ON = Remedy(text="once that is settled, let everything go on", command="agentic go-on")
RAISE = Remedy(text="raise agent.limits.usd_per_day, or the quota that it names", command="agentic doctor")
UNDER_WAY = (Status.QUEUED, Status.RUNNING)
DOCTOR = Remedy(text="find out what is wrong there", command="agentic doctor")
LOG = Remedy(text="see the agent's log, and start it again if it does not go on", command="agentic doctor")


class FactView(View):
    """One thing that was found out."""

    what: str
    text: str


class WhyView(OfRun):
    """The diagnosis of a run. `verdict` says in a sentence why it stands there."""

    waiting_for: WaitReason | None
    facts: tuple[FactView, ...]
    verdict: str
    remedy: Remedy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`looked` is false where the bus could not be asked; `trouble` says why. `lacks` is what is wrong with each thing
    that the agent needs. `word` is what the gateway says of the pending call.
    """

    now: datetime
    looked: bool = True
    trouble: str = ""
    request: Whereabouts | None = None
    result: Whereabouts | None = None
    letters: tuple[DeadLetter, ...] = ()
    present: frozenset[str] = frozenset()
    word: WaitingCall | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    dismissal: Dismissal | None = None


Verdict = tuple[str, Remedy | None]


def why_view(run: RunState, seen: Seen) -> WhyView:
    verdict, remedy_now = _verdict(run, seen)
    return WhyView(
        run_id=run.run_id,
        status=run.status,
        waiting_for=waiting_for(run),
        facts=tuple(FactView(what=what, text=text) for what, text in _facts(run, seen)),
        verdict=verdict,
        remedy=remedy_now,
    )


def out_longest(run: RunState) -> Pending | None:
    sent = run.sent
    return min(sent, key=lambda pending: pending.requested_at, default=None)


# What was found out


def _facts(run: RunState, seen: Seen) -> Iterator[tuple[str, str]]:
    yield "run", f"{run.status}, entry {run.version} of {instant(run.updated_at)}: {run.summary}"
    if run.due_at:
        yield "timer", f"the agent acts by itself at {instant(run.due_at)}"
    yield from _of_people(run)
    pending = out_longest(run)
    if pending:
        yield from _of_the_tool(run, pending, seen)
    if seen.trouble:
        yield "bus", seen.trouble
    for letter in seen.letters:
        yield "dead letter", f"{letter.id}, of {letter.subject}: {letter.said('Reason')}"
    for name, trouble in seen.lacks.items():
        if trouble:
            yield f"agent: {name}", trouble
    if seen.dismissal:
        yield "dismissed", f"by {seen.dismissal.by} at {instant(seen.dismissal.at)}"


def _of_people(run: RunState) -> Iterator[tuple[str, str]]:
    if until := reopens_until(run):
        yield "answer", f"until {instant(until)}, a person's answer sets it going again"
    for doubt in run.doubts:
        yield "in doubt", f"whether step {doubt.step} ({doubt.tool}) was carried out"


def _of_the_tool(run: RunState, pending: Pending, seen: Seen) -> Iterator[tuple[str, str]]:
    if seen.looked:
        yield "request", str(seen.request) if seen.request else "it is not on the bus"
    if seen.result:
        yield "result", str(seen.result)
    executor = executor_of(run, pending)
    if executor:
        yield "executor", f"{executor} {'answers' if executor in seen.present else 'does not answer'}"
    if seen.word:
        yield "gateway", f"since {instant(seen.word.since)}: {seen.word.why}"


# What it comes to


def _verdict(run: RunState, seen: Seen) -> Verdict:
    if (halt := seen.lacks.get("halt")) and run.status in UNDER_WAY:
        return halt, GO_ON
    return _of_its_wait(run, seen)


def _of_its_wait(run: RunState, seen: Seen) -> Verdict:
    waits = waiting_for(run)
    if run.status is Status.QUEUED:
        return _of_a_queued_run(seen)
    pending = out_longest(run)
    if run.status is Status.RUNNING and pending:
        return _of_a_sent_attempt(run, pending, seen)
    if waits is None or run.stop:
        return _of_a_stopped_run(run)
    if waits.kind == "model" and seen.lacks.get("model"):
        return f"the model brings no reply: {seen.lacks['model']}", DOCTOR
    if waits.kind == "budget":
        return f"{run.summary}: it waits for {waits.text}", RAISE
    by_itself = ", by itself" if run.status is Status.RUNNING else ""
    return f"it waits for {waits.text}{by_itself}", remedy(run)


def _of_a_queued_run(seen: Seen) -> Verdict:
    if seen.lacks.get("skills"):
        return f"it cannot begin before there are tools: {seen.lacks['skills']}", SERVE
    return "it waits for its turn: other runs have all places", None


def _of_a_stopped_run(run: RunState) -> Verdict:
    how = "it waits for a person" if run.status is Status.PAUSED else f"it has ended: {run.status}"
    return f"{how} ({run.ending_class}): {run.reason}", remedy(run)


def _of_a_sent_attempt(run: RunState, pending: Pending, seen: Seen) -> Verdict:
    what, executor = attempt_of(pending), executor_of(run, pending)
    if pending.grant:
        child = run_id_of(run.run_id, pending)
        return f"it waits for {what}, which run {child} works on", _of_child(child)
    if seen.result:
        return f"the result of {what} is on the bus, and the agent has not taken it up yet", LOG
    if refused := [letter for letter in seen.letters if not letter.settled]:
        return f"a message of the run was refused: {refused[-1].said('Reason')}", _of_letter(refused[-1])
    if seen.word:
        return f"the gateway has {what} and waits: {seen.word.why}", DOCTOR
    if not seen.looked:
        return f"it waits for the result of {what}; what lies on the bus could not be looked at", DOCTOR
    if executor and executor not in seen.present:
        return f"no executor works on {what}: {executor} does not answer", SERVE
    return _by_its_request(what, pending, seen)


def _by_its_request(what: str, pending: Pending, seen: Seen) -> Verdict:
    stands = {holder.stands for holder in seen.request.holders} if seen.request else set()
    if seen.request is None:
        return f"the request of {what} is not on the bus: the agent says it again when it starts", LOG
    if "in_hand" in stands:
        return f"{what} is being carried out; it is given up at {instant(pending.deadline_at)}", None
    if "ahead" in stands:
        return f"the request of {what} waits on the bus until an executor takes it", SERVE
    if not stands:
        return f"no consumer takes requests of route {pending.route}", SERVE
    text = f"{what} was taken and no result came; it is given up at {instant(pending.deadline_at)}, by itself"
    return text, None


def _of_child(run_id: str) -> Remedy:
    return Remedy(text="see why that run stands where it stands", command=f"agentic why {run_id}")


def _of_letter(letter: DeadLetter) -> Remedy:
    return Remedy(text="mend what it names, then send it again", command=f"agentic dlq retry {letter.id}")
