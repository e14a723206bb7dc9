"""Rules that hold in every world, each written once and checked on the record alone.

A rule that can break at a moment is checked at that moment, others at the end. The numbers are those of
docs/RELIABILITY.md.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from schemas import keys, subjects
from tests.sim.course import Course
from tests.sim.record import Message, Record
from tests.sim.servers.ductile import Job
from tests.sim.servers.model import Prompt

FORGED = "forged by a stranger"
"""Text of forged results, which no prompt may contain."""
SECRET = "s3cr3t-of-the-gateway"  # noqa: S105 - it is to be looked for
"""Secret of the settings, which no message, prompt or job may contain."""

STOP, GO_ON = "/v1/stop-all", "/v1/go-on"
UNDER_WAY_S = 0.05
"""Seconds after the answer to a stop in which messages sent before may arrive."""

TOKENS_PER_CALL = 2100
"""Usage that the model reports per call."""


class Violation(AssertionError):
    """A broken rule; its message begins with the rule's name."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass
class Invariants:
    record: Record
    course: Course
    halted_at: float | None = None
    """Time since which the kill switch is on."""
    _answered: set[str] = field(default_factory=set)
    _promised: set[str] = field(default_factory=set)
    _ids: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._goals = [str(start["goal"]) for start in self.course.starts]

    # at every step

    def stored(self, message: Message) -> None:
        if SECRET in str(message.payload):
            raise Violation("secrets stay inside", f"{message.subject} shows one")
        handlers: Mapping[str, Callable[[Message], None]] = {
            subjects.PROGRESS: self._progress,
            subjects.WAKE_ACCEPTED: self._accepted,
            subjects.WAITING: self._waits,
            subjects.TOOL_RESULT: self._resulted,
            subjects.REOPENED: lambda message: self._answered.discard(message.run_id),
            **dict.fromkeys(subjects.ENDINGS, self._ended),
        }
        if message.subject.startswith(subjects.TOOL_REQUEST):
            self._requested(message)
        elif message.subject in handlers:
            handlers[message.subject](message)

    def ran(self, job: Job) -> None:
        name = job.plugin
        if name in self.course.forbidden:
            raise Violation("only what is allowed runs", f"{name} ran")
        if SECRET in str(job.payload):
            raise Violation("secrets stay inside", f"a job of {name} shows one")
        asked = next((one for one in self.record.requests if _call(one) == job.call), None)
        if asked is None:
            raise Violation("what runs was asked for", f"{job.call or name} ran, and no request of it was stored")
        if not asked.payload["tool_payload"].items() <= job.payload.items():
            raise Violation("what runs was asked for", f"{job.call} ran with {job.payload}")
        if self.course.plugins[name].tier == "write":
            self._wrote(job)
        if name in self.course.approved and not self._approvals(job):
            raise Violation("a write that needs a person waits for one", f"{job.call} ran without an approval")

    def paid(self, prompt: Prompt) -> None:
        if FORGED in prompt.user:
            raise Violation("results are believed only when authenticated", "a prompt shows what a stranger made up")
        if SECRET in prompt.user or SECRET in prompt.system:
            raise Violation("secrets stay inside", "a prompt shows one")
        times = sum(paid.user == prompt.user for paid in self.record.paid)
        deaths = sum(name.startswith("agent") for name in self.record.deaths)
        runs = sum(f"\n{start.payload['goal']}\n" in prompt.user for start in self.record.of(subjects.START))
        if times > max(runs, 1) + deaths + self.record.interrupted:
            excused = f"{runs} runs of its goal, {deaths} deaths of agents and {self.record.interrupted} lost replies"
            raise Violation("no model call is paid twice", f"one was paid {times} times, with {excused}")
        self._affordable(prompt)
        told = [goal for goal in self._goals if goal in prompt.user]
        if len(told) > 1:
            raise Violation("runs are apart", f"one prompt shows the goals {told}")

    def restored(self) -> None:
        """Resets to the state of the backup: later messages may now differ."""
        self._ids.clear()
        self._answered.clear()

    def answered(self, told: Mapping[str, object]) -> None:
        """Notes what a caller was promised: a run by its id, or a webhook by the id of its message."""
        if run_id := told.get("run_id"):
            self._promised.add(str(run_id))
        event = told.get("receiver_event_id")
        if event and event not in {message.id for message in self.record.of(subjects.START)}:
            raise Violation("what a caller is told is so", f"{event} is not stored")

    # in the end

    def at_the_end(self) -> None:
        for check in (
            self._all_ended,
            self._all_answered,
            self._words_heard,
            self._writes_done,
            self._endings_received,
        ):
            for flaw in check():
                raise Violation(*flaw)

    def _all_ended(self) -> Iterator[tuple[str, str]]:
        accepted = {message.run_id for message in self.record.of(subjects.WAKE_ACCEPTED)}
        ended = {message.run_id for message in self.record.endings}
        told = ended | {message.run_id for message in self.record.of(subjects.PROGRESS)}
        open_still = (accepted | told | self._promised) - ended
        if len(open_still) > self.course.damaged:
            yield "nothing accepted is stranded", f"{sorted(open_still)} never ended"
        starts = {message.id.partition("#")[0] for message in self.record.of(subjects.START)}
        if self.course.own_requests and len(starts) > len(accepted | told):
            yield "nothing accepted is stranded", f"{len(starts)} starts became {len(accepted | told)} runs"
        for run_id in told - accepted if self.record.lossless else ():
            yield "every run was accepted", f"{run_id} was never told to be"

    def _all_answered(self) -> Iterator[tuple[str, str]]:
        """Every request of a completed run has a result; other endings may come earlier."""
        results = {_answers(message) for message in self.record.of(subjects.TOOL_RESULT)}
        completed = {message.run_id for message in self.record.of(subjects.COMPLETED)}
        for message in self.record.requests:
            if message.run_id in completed and _answers(message) not in results:
                yield "every request is answered", f"step {message.payload['step']} of {message.run_id} is not"

    def _words_heard(self) -> Iterator[tuple[str, str]]:
        for message in self.record.of(subjects.SIGNAL):
            text = message.payload.get("message") or ""
            over = [one for one in self.record.endings if one.run_id == message.run_id and one.at < message.at]
            if text and not over and not any(text in prompt.user for prompt in self.record.paid):
                yield "a person's word is never lost", f"{text!r} reached no model"

    def _endings_received(self) -> Iterator[tuple[str, str]]:
        received = {(event.get("type"), event.get("data", {}).get("run_id")) for event in self.record.received}
        for message in self.record.endings:
            if message.payload.get("has_callback") and (message.subject, message.run_id) not in received:
                yield "who asks to be told is", f"{message.id} reached no receiver"

    def _writes_done(self) -> Iterator[tuple[str, str]]:
        ran = {job.call for job in self.record.ran}
        asked = {_answers(message): _call(message) for message in self.record.requests}
        for message in self.record.of(subjects.TOOL_RESULT):
            call = asked.get(_answers(message), "")
            if call and call not in ran and self._says_ok(message):
                yield "what is said to be done was done", f"{call} has a result and never ran"

    def _says_ok(self, message: Message) -> bool:
        of_ductile = message.payload["tool"] in self.course.plugins
        return message.payload["status"] == "ok" and of_ductile and FORGED not in str(message.payload)

    # single rules

    def _affordable(self, prompt: Prompt) -> None:
        most = self.course.constraints.get("max_tokens")
        goal = next((goal for goal in self._goals if goal in prompt.user), "")
        spent = TOKENS_PER_CALL * sum(goal in paid.user for paid in self.record.paid)
        if most and spent > most:
            raise Violation("budgets are never passed", f"{spent} tokens of {most}")

    def _named(self, message: Message, *what: object) -> None:
        known = self._ids.setdefault(f"{message.subject} {what}", message.id)
        if known != message.id:
            raise Violation("what is said again keeps its id", f"{message.subject} {what}: {known}, {message.id}")

    def _wrote(self, job: Job) -> None:
        of_call = [one for one in self.record.ran if (one.call, one.plugin) == (job.call, job.plugin)]
        if len(of_call) > 1:
            raise Violation("no write runs twice", f"{job.call} ran {len(of_call)} times")
        of_step = [one for one in self.record.ran if (_step(one), one.plugin) == (_step(job), job.plugin)]
        done = [one for one in of_step if one is not job and json.loads(one.result or b"{}")["status"] == "ok"]
        if done:
            raise Violation("no finished step runs again", f"{job.call} ran after {done[0].call}, which went well")

    def _approvals(self, job: Job) -> bool:
        """A person approved these arguments of this run before."""
        run_id = job.call.partition(":")[0]
        asked = {m.payload.get("arguments_hash") for m in self.record.of(subjects.WAITING) if m.run_id == run_id}
        given = [m for m in self.record.of(subjects.SIGNAL) if m.run_id == run_id and m.payload["kind"] == "approve"]
        return any(message.payload.get("arguments_hash") in asked for message in given)

    def _requested(self, message: Message) -> None:
        self._same_id(message)
        self._named(message, *_answers(message))
        payload = message.payload
        if message.run_id in self._answered:
            raise Violation("an end is the end", f"step {payload['step']} is asked for after {message.run_id} ended")
        if payload["step"] > self.course.max_steps:
            raise Violation("budgets are never passed", f"step {payload['step']} of {self.course.max_steps}")
        if self.halted_at is not None and message.at > self.halted_at + UNDER_WAY_S:
            raise Violation("while all stands still nothing begins", f"step {payload['step']} is asked for")
        results = {_answers(one) for one in self.record.of(subjects.TOOL_RESULT)}
        requests = {_answers(one) for one in self.record.requests if one.run_id == message.run_id}
        if len(requests - results) > self.course.at_once:
            raise Violation("one action at a time", f"{len(requests - results)} of {message.run_id} are out")

    def _accepted(self, message: Message) -> None:
        self._named(message, message.run_id)
        known = self._ids.setdefault(f"wake {message.payload['wake_id']}", message.run_id)
        if known != message.run_id:
            raise Violation("one wake is one run", f"{message.payload['wake_id']} is {known} and {message.run_id}")

    def _ended(self, message: Message) -> None:
        self._same_id(message)
        if not message.payload.get("resumable"):
            self._answered.add(message.run_id)
        ended = {one.id for one in distinct(self.record.endings) if one.run_id == message.run_id}
        if len(ended) > self.course.endings:
            raise Violation("exactly one ending", f"{message.run_id} has {sorted(ended)}")

    def _waits(self, message: Message) -> None:
        payload = message.payload
        self._named(
            message, message.run_id, *(payload.get(name) for name in ("kind", "question", "arguments_hash", "step"))
        )

    def _resulted(self, message: Message) -> None:
        if FORGED not in str(message.payload):
            self._named(message, *_answers(message), message.id.endswith(keys.LATE_SUFFIX))

    def _progress(self, message: Message) -> None:
        self._named(message, *(message.payload.get(name) for name in ("run_id", "seq", "phase", "step", "summary")))
        when = [message.payload.get(name) for name in ("run_id", "seq", "phase", "step", "status")]
        told = repr({name: value for name, value in message.payload.items() if not name.endswith("_at")})
        if self._ids.setdefault(f"progress {when}", told) != told:
            raise Violation("a run is told in one way", f"{message.id} is told in two")

    def _same_id(self, message: Message) -> None:
        known = self._ids.setdefault(message.id, _words(message))
        if known != _words(message):
            raise Violation("an id names one message", f"{message.id} names two")


def distinct(messages: list[Message]) -> list[Message]:
    return list({(message.subject, message.id): message for message in messages}.values())


def _words(message: Message) -> str:
    return f"{message.subject} {message.run_id} {message.payload.get('step')} {message.payload.get('tool')}"


def _answers(message: Message) -> tuple[object, ...]:
    payload = message.payload
    names = ("run_id", "step", "tool", "attempt", "task", "round")
    return tuple(payload.get(name) or (1 if name == "attempt" else None) for name in names)


def _call(message: Message) -> str:
    payload = message.payload
    which = f":{payload['task']}:{payload['round']}" if payload.get("task") else ""
    return f"{payload['run_id']}:{payload['step']}{which}:{payload['tool']}:{payload.get('attempt') or 1}"


def _step(job: Job) -> str:
    return job.call.rpartition(":")[0]
