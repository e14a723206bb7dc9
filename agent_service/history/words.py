"""One table of sentences for events, facts and decisions; and the text of what a run waits for."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter
from string import Formatter
from typing import Any, NamedTuple

from agent_service.core import events, facts, phases, waiting
from agent_service.core.brief import Limits
from agent_service.core.state import RunState
from agent_service.history.items import Thought
from agent_service.history.results import execution_of, result_of, summary_of_answer
from agent_service.history.text import instant, one_line
from agent_service.run.journal import JournalRecord
from agent_service.sentences import OPTIONAL
from agent_service.store.lines import WaitsFor, waits_for
from schemas.events import SignalKind, ToolResult
from schemas.status import counted
from schemas.values import dataclass

MAX_SUMMARY = 500
PAUSES = "pauses for "
DONE = {
    phases.Phase.VERIFY: "verified",
    phases.Phase.FRAME: "framed",
    phases.Phase.PLAN: "planned",
    phases.Phase.ACT: "acted",
    phases.Phase.REFLECT: "reflected",
    phases.Phase.COMPACT: "compacted",
}
SIGNALS: dict[SignalKind, str] = {
    "message": "message",
    "answer": "answer",
    "approve": "approved",
    "reject": "rejected",
    "resume": "resumed",
    "raise_budget": "budget raised",
}
OUTCOMES = {
    "ok": "ok",
    "error": "failed",
    "continuation": "asks for more first",
    "budget": "may gather no more",
    "late": "came after the run's end, which it does not change",
    "refused": "is not what the run waited for",
}
SENTENCES: dict[type[Any], str] = {
    events.WakeAccepted: "accepted[ from {by}][: {brief.goal}]",
    events.RunStarted: "started with {skills:tools}[: {skills:names}]",
    facts.CallReserved: "sets {reserve.tokens} tokens aside ({reserve.cost_usd:usd}) for call {call} to {model}",
    events.ModelUnavailable: "{:unavailable}[: {message}]",
    events.CancelRequested: "cancel[ by {by}][: {reason}]",
    events.SignalReceived: "{signal.kind:signal}[ by {by}][: {signal.message}][ ({signal.outcome:plain})]",
    events.TurnBroke: "the agent broke",
    events.StoodStill: "goes on[: everything was stopped by {by} since {since}][: {reason}]",
    facts.CallAsked: "asked the model to {phase} (call {call})[, telling it: {told:joined}]",
    facts.CallPostponed: "the model is asked again at {retry_at}",
    facts.CallLost: "the reply to call {call} is lost, which counts as {tokens} tokens",
    facts.RequestSent: "sent {pending:attempt}[: {pending.action:call}, answer due by {pending.deadline_at}]",
    facts.RetrySet: "{pending:attempt} follows at {pending.retry_at}",
    facts.RequestFinished: "{tool} {status:outcome}[: {summary}]",
    facts.Slept: "waits until {until}[: {why}]",
    facts.RunReopened: "the run goes on, reopened",
    facts.RunEnded: "the run ended: {status} ({ending_class})[: {reason}]",
    waiting.Approval: PAUSES + "a person's approval of {proposal:proposed}[: {reason}]",
    waiting.Question: PAUSES + "a person's answer[: {ask.question}]",
    waiting.Stop: PAUSES + "a person ({ending_class})[: {reason}]",
    phases.Framing: "{goal_statement}",
    phases.Plan: "{actions:calls}[: {rationale}]",
    phases.AskPerson: "asks a person[: {question}]",
    phases.Wait: "waits[: {why}]",
    phases.Reflection: "{verdict}: {summary}",
    phases.ItemClaim: '{item}, by {evidence}[, "{quote}"]',
    phases.ItemRetraction: "{item}[: {reason}]",
    phases.Verification: "{holds:holds}: {reason}",
    phases.Digest: "{memory:number} facts take the place of the older notes",
    phases.ModelRefusal: "{:refusal}",
    phases.Unusable: "{reason}",
}
"""Parts in brackets are not logged, and stand at the end."""


class Clause(NamedTuple):
    """A clause; `bare`, its logged part, has no text of goals, models and tools. `more` words the rest."""

    bare: str
    more: Callable[[], str] = str

    def __str__(self) -> str:
        return self.bare + self.more()


def clause(subject: Any) -> Clause:
    """`subject`: an event, a fact, a decision or a person's ask, of a type that has a sentence."""
    subject = subject.ask if isinstance(subject, facts.PersonAsked) else subject
    bare, *more = _PARTS[type(subject)]
    return Clause(bare(subject), lambda: "".join([part(subject) for part in more]))


def title_and_text(subject: Any) -> dict[str, str]:
    bare, more = clause(subject)
    text = more().removeprefix(" by ").removeprefix(" from ").removeprefix(": ")
    return {"title": bare[0].upper() + bare[1:], "text": text}


def entry_summary(record: JournalRecord) -> str:
    return one_line("; ".join(map(str, clauses(record))), MAX_SUMMARY)


def answer_behind(record: JournalRecord, over: facts.RequestFinished) -> facts.AttemptAnswered | None:
    """The answer in the same entry that finished the request: its own, or that of its repetition."""
    for answer in record.all(facts.AttemptAnswered):
        asker, _, last = answer.task.rpartition(".")
        if answer.step == over.step and (asker if last == waiting.AGAIN else answer.task) == over.name[1]:
            return answer
    return None


def clauses(record: JournalRecord) -> Iterator[Clause]:
    """Skips finished requests that the clause of their answer covers."""
    yield from _event_clauses(record)
    for fact in record.facts:
        if isinstance(fact, facts.RequestFinished):
            if answer_behind(record, fact) is None:
                yield _prefixed(request_name(fact.name), clause(fact))
        elif isinstance(fact, facts.PersonAsked) or type(fact) in SENTENCES:
            yield clause(fact)


def _event_clauses(record: JournalRecord) -> Iterator[Clause]:
    event = record.event
    match event:
        case events.ModelReplied(model=model):
            *others, last = [decision_clause(Thought(event, one)) for one in record.all(facts.Decided)]
            yield from (*others, last._replace(more=lambda: f"{last.more()} (by {speaker(model)})"))
        case events.ToolReturned() | events.TimerFired():
            answers = record.all(facts.AttemptAnswered)
            for one in answers:
                yield _prefixed(_attempt_name(one.name, one.attempt), answer_clause(one, result_of(record, one.step)))
            if not answers:
                yield Clause("the time has come" if isinstance(event, events.TimerFired) else "a result")
        case _:
            yield clause(event)


def decision_clause(thought: Thought) -> Clause:
    decision, one = thought.decision, thought.became
    if one.status != "ok":
        return Clause(f"{one.phase} {one.status}", lambda: f": {'; '.join(map(str, one.why)) or clause(decision)}")
    asks = isinstance(decision, phases.AskPerson | phases.Wait)
    return clause(decision) if asks else Clause(DONE[one.phase], lambda: f": {clause(decision)}")


def answer_clause(answer: facts.AttemptAnswered, result: ToolResult | None) -> Clause:
    def more() -> str:
        what = answer.error.message if answer.error else summary_of_answer(answer, result)
        execution = execution_of(result)
        ran = f" ({execution})" if execution and str(execution) else ""
        return ran + (f": {what}" if what else "")

    return Clause(f"{answer.tool} {OUTCOMES[answer.status]}", more)


def speaker(model: str) -> str:
    """The name that the model gave itself, with a note for a script."""
    return f"the script {model} (no language model)" if "script" in model.casefold() else model


def limits(allowed: Limits) -> list[str]:
    attempts = f"{allowed.max_attempts} attempts each, {allowed.max_attempts_of_run} in all"
    then = "hands itself to a person" if allowed.on_budget == "escalate" else "pauses until a person raises it"
    return [
        f"at most {allowed.max_steps} steps, {attempts}",
        f"at most {allowed.max_reframes} reframes",
        f"until {instant(allowed.deadline_at)}",
        *([f"at most {allowed.max_tokens} tokens"] if allowed.max_tokens is not None else []),
        *([f"at most {usd(allowed.max_cost_usd)}"] if allowed.max_cost_usd is not None else []),
        f"when a limit is reached, the run {then}",
    ]


def usd(cost: float | None) -> str:
    return "price not known" if cost is None else f"{cost:.4f} USD"


def call_of(action: phases.Action) -> str:
    return f"{action.tool} {one_line(action.command, 64)}"


def request_name(name: waiting.RequestName) -> str:
    step, task, asked_in = name
    return f"step {step}, {task} of round {asked_in}" if task else f"step {step}"


def attempt_text(pending: waiting.Pending) -> str:
    return f"{request_name(pending.name)} ({call_of(pending.action)}), attempt {pending.attempt}"


def _attempt_name(name: waiting.RequestName, attempt: int) -> str:
    return f"{request_name(name)} attempt {attempt}" if attempt > 1 else request_name(name)


def _prefixed(name: str, of: Clause) -> Clause:
    return of._replace(bare=f"{name}: {of.bare}")


_FORMATS: dict[str, Callable[[Any], Any]] = {
    "": lambda value: instant(value) if isinstance(value, datetime) else value,
    "attempt": lambda pending: _attempt_name(pending.name, pending.attempt),
    "call": call_of,
    "calls": lambda actions: ", ".join(map(call_of, actions)),
    "holds": lambda holds: "holds" if holds else "does not hold",
    "joined": lambda texts: "; ".join(map(str, texts)),
    "names": lambda skills: ", ".join(skill.name for skill in skills),
    "number": len,
    "tools": lambda tools: counted(len(tools), "tools"),
    "outcome": OUTCOMES.__getitem__,
    "plain": lambda word: (word or "").replace("_", " "),
    "proposed": lambda what: call_of(what.action) if isinstance(what, phases.Plan) else "a new framing",
    "refusal": lambda refusal: ": ".join(filter(None, (refusal.category, refusal.explanation))),
    "signal": SIGNALS.__getitem__,
    "unavailable": lambda it: "not asked" if it.remedy == "hold" else f"the model gave no answer ({it.error_class})",
    "usd": usd,
}
"""Formats of values, by the name after the colon in a sentence."""


def _compiled(part: str, *, optional: bool) -> Callable[[Any], str]:
    pieces = [
        (literal, None if path is None else attrgetter(path) if path else (lambda value: value), _FORMATS[how or ""])
        for literal, path, how, _ in Formatter().parse(part)
    ]

    def rendered(subject: Any) -> str:
        text = ""
        for literal, value_of, in_words in pieces:
            value = in_words(value_of(subject)) if value_of else ""
            if optional and value_of and value in ("", None):
                return ""
            text += f"{literal}{value}"
        return text

    return rendered


_PARTS = {
    kind: [_compiled(part, optional=place > 0) for place, part in enumerate(filter(None, OPTIONAL.split(sentence)))]
    for kind, sentence in SENTENCES.items()
}


# What a run waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason(WaitsFor):
    """`text` completes the sentence `it waits for …`."""

    text: str


def waiting_for(run: RunState) -> WaitReason | None:
    """None for a run that has not begun, or has ended."""
    waits = waits_for(run, run.due_at)
    return WaitReason(**asdict(waits), text=_wait_text(run.waiting)) if waits else None


def _wait_text(state: waiting.Waiting) -> str:
    match state:
        case waiting.Thinking(asking=asking, retry_at=at, still_since=since):
            call = f"model call {asking.call} ({asking.phase})"
            if at is None:
                return f"the reply to {call}"
            spent = f"{instant(at)}, or more money: what may be spent in a day is spent before {call}"
            return spent if since else f"the next try of {call}, at {instant(at)}"
        case waiting.Acting(pendings=(waiting.Pending(retry_at=datetime() as at) as pending,)):
            return f"{attempt_text(pending)}, which is sent at {instant(at)}"
        case waiting.Acting(pendings=pendings):
            results = "the result" if len(pendings) == 1 else "the results"
            return f"{results} of {', '.join(map(attempt_text, pendings))}"
        case waiting.Sleeping(until=at, why=why):
            return f"{instant(at)}: {why}"
        case waiting.NeedsPerson(ask=ask):
            return str(clause(ask)).removeprefix(PAUSES)
    return ""


def executor_of(run: RunState, tool: str) -> str | None:
    skill = run.brief.skill(tool)
    return skill.executor if skill else None
