"""The diagnosis of a run: its wait, its messages on the bus, a verdict and a remedy. Nothing is guessed."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal

from agent_service.core.limits import child_run_id
from agent_service.core.state import RunState
from agent_service.core.waiting import Pending, Status
from agent_service.history.text import View, instant
from agent_service.history.words import WaitReason, attempt_text, executor_of, waiting_for
from agent_service.run.human_tasks import Remedy, remedy
from agent_service.run.ports import Dismissal
from agent_service.views.inbox import DeadLetter, letter_item
from schemas import subjects
from schemas.status import WaitingCall
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPosition:
    """A consumer of the message, and how far it is: the message is not delivered yet, in hand, or done."""

    consumer: str
    progress: Literal["ahead", "in_hand", "done"]
    before: int
    """Messages ahead of this one."""

    def __str__(self) -> str:
        return f"consumer {self.consumer} {_PROGRESS[self.progress].format(self.before)}"


_PROGRESS = {
    "ahead": "has not delivered it: {} are before it",
    "in_hand": "has delivered it",
    "done": "has dealt with it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLocation:
    stream: str
    seq: int
    at: datetime
    consumers: tuple[ConsumerPosition, ...] = ()

    def __str__(self) -> str:
        consumed = "; ".join(map(str, self.consumers)) or "no consumer takes its subject"
        return f"message {self.seq} of {self.stream}, stored {instant(self.at)}; {consumed}"


SERVE = Remedy(text="start the executor", command="ductile-gateway serve")
GO_ON = Remedy(text="resume everything once that is settled", command="agentic go-on")
RAISE = Remedy(text="raise agent.limits.usd_per_day, or the quota that it names", command="agentic doctor")
DOCTOR = Remedy(text="find out what is wrong there", command="agentic doctor")
LOG = Remedy(text="see the agent's log, and start it again if it does not go on", command="agentic doctor")


class FactView(View):
    """A finding of the diagnosis."""

    what: str
    text: str


class WhyView(View):
    """The diagnosis of a run. `verdict` is a sentence that says why it does not go on."""

    run_id: str
    status: Status
    waiting_for: WaitReason | None
    facts: tuple[FactView, ...]
    verdict: str
    remedy: Remedy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """`trouble` is the reason why the bus could not be read. `lacks` has the trouble of each part that the agent needs.
    `gateway_call` is the gateway's report on the pending call.
    """

    trouble: str = ""
    request: MessageLocation | None = None
    result: MessageLocation | None = None
    letters: tuple[DeadLetter, ...] = ()
    present: frozenset[str] = frozenset()
    gateway_call: WaitingCall | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    dismissal: Dismissal | None = None


Verdict = tuple[str, Remedy | None]


def why_view(run: RunState, seen: Observations) -> WhyView:
    verdict, remedy_now = next(_verdicts(run, seen))
    return WhyView(
        run_id=run.run_id,
        status=run.status,
        waiting_for=waiting_for(run),
        facts=tuple(FactView(what=what, text=text) for what, text in _facts(run, seen) if text),
        verdict=verdict,
        remedy=remedy_now,
    )


def oldest_pending(run: RunState) -> Pending | None:
    return min(run.sent, key=lambda pending: pending.requested_at, default=None)


def _facts(run: RunState, seen: Observations) -> Iterator[tuple[str, str]]:
    summary = "" if run.summary == run.reason else f": {run.summary}"  # the verdict has the reason
    yield "run", f"{run.status}, entry {run.version} of {instant(run.updated_at)}{summary}"
    yield "timer", f"the agent acts by itself at {instant(run.due_at)}" if run.due_at else ""
    until, pending = run.reopens_until, oldest_pending(run)
    yield "answer", f"until {instant(until)}, a person's answer sets it going again" if until else ""
    yield from (("in doubt", f"whether step {doubt.step} ({doubt.tool}) was carried out") for doubt in run.doubts)
    if pending:
        executor = executor_of(run, pending.action.tool)
        answers = "answers" if executor in seen.present else "does not answer"
        yield "request", str(seen.request or ("" if seen.trouble else "it is not on the bus"))
        yield "result", str(seen.result or "")
        yield "executor", f"{executor} {answers}" if executor else ""
        yield "gateway", f"since {instant(call.since)}: {call.why}" if (call := seen.gateway_call) else ""
    yield "bus", seen.trouble
    yield from (("dead letter", f"{one.id}, of {one.subject}: {one.header('Reason')}") for one in seen.letters)
    yield from ((f"agent: {name}", trouble) for name, trouble in seen.lacks.items())
    yield "dismissed", f"by {seen.dismissal.by} at {instant(seen.dismissal.at)}" if seen.dismissal else ""


def _verdicts(run: RunState, seen: Observations) -> Iterator[Verdict]:
    """Verdicts by precedence."""
    if (halt := seen.lacks.get("halt")) and run.status in (Status.QUEUED, Status.RUNNING):
        yield halt, GO_ON
    if run.status is Status.QUEUED:
        if seen.lacks.get("skills"):
            yield f"it cannot begin before there are tools: {seen.lacks['skills']}", SERVE
        yield "it waits for its turn: other runs have all places", None
    if run.status is Status.RUNNING and (pending := oldest_pending(run)):
        yield from _attempt_verdicts(run, pending, seen)
    yield from _wait_verdicts(run, seen)


def _wait_verdicts(run: RunState, seen: Observations) -> Iterator[Verdict]:
    waits = waiting_for(run)
    if waits is None or run.stop:
        how = "it waits for a person" if run.status is Status.PAUSED else f"it has ended: {run.status}"
        yield f"{how} ({run.ending_class}): {run.reason}", remedy(run)
        return
    if waits.kind == "model" and seen.lacks.get("model"):
        yield f"the model brings no reply: {seen.lacks['model']}", DOCTOR
    if waits.kind == "budget":
        yield f"{run.summary}: it waits for {waits.text}", RAISE
    by_itself = "; it goes on by itself" if run.status is Status.RUNNING else ""
    yield f"it waits for {waits.text}{by_itself}", remedy(run)


def _attempt_verdicts(run: RunState, pending: Pending, seen: Observations) -> Iterator[Verdict]:
    what, executor = attempt_text(pending), executor_of(run, pending.action.tool)
    if pending.grant:
        child = child_run_id(run.run_id, pending)
        see = Remedy(text="see what that run waits for", command=f"agentic why {child}")
        yield f"it waits for {what}, which run {child} works on", see
    for letter in reversed([letter for letter in seen.letters if _is_of(letter, pending)]):
        yield f"a message of the run was refused: {letter.header('Reason')}", letter_item(letter).remedy
    if seen.result and {one.progress for one in seen.result.consumers} != {"done"}:
        yield f"the result of {what} is on the bus, and the agent has not taken it up yet", LOG
    if seen.gateway_call:
        yield f"the gateway has {what} and waits: {seen.gateway_call.why}", DOCTOR
    if executor and executor not in seen.present:
        yield f"no executor works on {what}: {executor} does not answer", SERVE
    if seen.trouble and not seen.request:
        yield f"it waits for the result of {what}; what lies on the bus could not be looked at", DOCTOR
    yield _request_verdict(what, pending, seen)


def _is_of(letter: DeadLetter, pending: Pending) -> bool:
    """True for an open letter of the call: of its request, or of a result since."""
    is_of_call = letter.subject == subjects.TOOL_RESULT or letter.subject.startswith(f"{subjects.TOOL_REQUEST}.")
    return is_of_call and not letter.settled and letter.buried >= pending.requested_at


def _request_verdict(what: str, pending: Pending, seen: Observations) -> Verdict:
    until = instant(pending.deadline_at)
    if seen.request is None:
        return f"the request of {what} is not on the bus: the agent says it again when it starts", LOG
    match sorted(one.progress for one in seen.request.consumers):
        case []:
            return f"no consumer takes requests of route {pending.route}", SERVE
        case [*_, "in_hand"]:
            return f"{what} is being carried out; it is given up at {until}", None
        case ["ahead", *_]:
            return f"the request of {what} waits on the bus until an executor takes it", SERVE
    return f"{what} was taken and no result came; it is given up at {until}, by itself", None
