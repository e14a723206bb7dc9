"""Events, facts and decisions in plain text, for items of the history and for the log.

A model has the name it gave itself, so that a script is known as a script.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from agent_service.core import events, facts, phases
from agent_service.core.attempts import AGAIN, Name, Pending
from agent_service.core.brief import Limits
from agent_service.core.waiting import Approval, Question, Stop
from agent_service.history.items import Thought
from agent_service.history.plain import instant, one_line
from agent_service.history.results import execution_of, result_of, summary_of_answer
from agent_service.run.journal import Record
from schemas.events import SignalKind, ToolResult

MAX_SAYING = 500
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


class Said(NamedTuple):
    """A clause. `bare` has no words of goals, models and tools: it is all that the log has of it."""

    bare: str
    more: str = ""

    def __str__(self) -> str:
        return self.bare + self.more


def titled(said: Said) -> dict[str, str]:
    """Title and text of an item."""
    text = said.more.removeprefix(" by ").removeprefix(" from ").removeprefix(": ")
    return {"title": said.bare[0].upper() + said.bare[1:], "text": text}


def say(record: Record) -> str:
    """The entry in one line."""
    return one_line("; ".join(map(str, (*happened(record), *led_to(record)))), MAX_SAYING)


def bare(record: Record) -> str:
    return "; ".join(said.bare for said in (*happened(record), *led_to(record)))


def answer_to(record: Record, over: facts.StepFinished | facts.TaskFinished) -> facts.AttemptAnswered | None:
    """The answer of the same entry that ended it, and tells more of it."""
    mine = (answer for answer in record.all(facts.AttemptAnswered) if answer.step == over.step)
    return next((answer for answer in mine if of(answer.task) == over.name[1]), None)


def led_to(record: Record) -> Iterator[Said]:
    """What the event led to, but for what became of what it brought itself."""
    for fact in record.facts:
        if isinstance(fact, facts.StepFinished | facts.TaskFinished):
            if answer_to(record, fact) is None:
                yield _named(fact.name, 1, finished(fact))
        elif said := _OF_FACTS.get(type(fact)):
            yield said(fact)


def led_to_by(fact: facts.Fact) -> Said:
    return _OF_FACTS[type(fact)](fact)


def of(task: str) -> str:
    """The task that a request is of: its own, or the one that is asked again."""
    asker, _, last = task.rpartition(".")
    return asker if last == AGAIN else task


def happened(record: Record) -> Iterator[Said]:
    event = record.event
    match event:
        case events.ModelReplied(model=model):
            *others, last = (decided(Thought(event, one)) for one in record.all(facts.Decided))
            yield from (*others, last._replace(more=f"{last.more} (by {speaker(model)})"))
        case events.ToolReturned() | events.TimerFired():
            due = "the time has come" if isinstance(event, events.TimerFired) else "a result"
            yield from [answered(record, answer) for answer in record.all(facts.AttemptAnswered)] or [Said(due)]
        case _:
            yield of_event(event)


def speaker(model: str) -> str:
    return f"the script {model} (no language model)" if "script" in model.casefold() else model


def limits(allowed: Limits) -> list[str]:
    attempts = f"{allowed.max_attempts} attempts each, {allowed.max_attempts_of_run} in all"
    lines = [
        f"at most {allowed.max_steps} steps, {attempts}",
        f"at most {allowed.max_reframes} reframes",
        f"until {instant(allowed.deadline_at)}",
    ]
    if allowed.max_tokens is not None:
        lines.append(f"at most {allowed.max_tokens} tokens")
    if allowed.max_cost_usd is not None:
        lines.append(f"at most {allowed.max_cost_usd:.4f} USD")
    then = "hands itself to a person" if allowed.on_budget == "escalate" else "pauses until a person raises it"
    return [*lines, f"when a limit is reached, the run {then}"]


# Decisions


def decided(thought: Thought) -> Said:
    decision, one = thought.decision, thought.became
    if one.status != "ok":
        return Said(f"{one.phase} {one.status}", f": {'; '.join(map(str, one.why)) or gist(decision)}")
    if isinstance(decision, phases.Ask | phases.Wait):
        what, _, why = gist(decision).partition(":")
        return Said(what, f":{why}")
    return Said(DONE[one.phase], f": {gist(decision)}")


def gist(decision: phases.Decision) -> str:
    return _GISTS[type(decision)](decision)


def _planned(plan: phases.Plan) -> str:
    calls = ", ".join(map(call_of, plan.actions))
    return f"{calls}: {plan.rationale}" if plan.rationale else calls


_GISTS: dict[type[Any], Callable[[Any], str]] = {
    phases.Framing: lambda framing: framing.goal_statement,
    phases.Plan: _planned,
    phases.Ask: lambda ask: f"asks a person: {ask.question}",
    phases.Wait: lambda wait: f"waits: {wait.why}",
    phases.Reflection: lambda reflection: f"{reflection.verdict}: {reflection.summary}",
    phases.Verification: lambda one: f"{'holds' if one.holds else 'does not hold'}: {one.reason}",
    phases.Digest: lambda digest: f"{len(digest.memory)} facts take the place of the older notes",
    phases.Refusal: lambda refusal: ": ".join(filter(None, (refusal.category, refusal.explanation))),
    phases.Unusable: lambda unusable: unusable.reason,
}


def usd(cost: float | None) -> str:
    return "price not known" if cost is None else f"{cost:.4f} USD"


def reserved(event: events.CallReserved) -> str:
    return (
        f"at most {event.reserve.tokens} tokens ({usd(event.reserve.cost_usd)}) for call {event.call} to {event.model}"
    )


# Requests


def call_of(action: phases.Action) -> str:
    return f"{action.tool} {one_line(action.command, 64)}"


def proposed(proposal: phases.Plan | phases.Framing) -> str:
    return call_of(proposal.action) if isinstance(proposal, phases.Plan) else "a new framing"


def request_of(name: Name) -> str:
    step, task, asked_in = name
    return f"step {step}, {task} of round {asked_in}" if task else f"step {step}"


def attempt_of(pending: Pending) -> str:
    return f"{request_of(pending.name)} ({call_of(pending.action)}), attempt {pending.attempt}"


def _which(name: Name, attempt: int) -> str:
    return f"{request_of(name)} attempt {attempt}" if attempt > 1 else request_of(name)


def answered(record: Record, answer: facts.AttemptAnswered) -> Said:
    return _named(answer.name, answer.attempt, came(answer, result_of(record, answer.step)))


def came(answer: facts.AttemptAnswered, result: ToolResult | None) -> Said:
    what = answer.error.message if answer.error else summary_of_answer(answer, result)
    execution = execution_of(result)
    ran = f" ({execution})" if execution and str(execution) else ""
    return Said(f"{answer.tool} {OUTCOMES[answer.status]}", ran + (f": {what}" if what else ""))


def finished(fact: facts.StepFinished | facts.TaskFinished) -> Said:
    return Said(f"{fact.tool} {OUTCOMES[fact.status]}", f": {fact.summary}")


def _named(name: Name, attempt: int, said: Said) -> Said:
    return said._replace(bare=f"{_which(name, attempt)}: {said.bare}")


# People


def _signalled(event: events.SignalReceived) -> Said:
    signal = event.signal
    return _said(
        SIGNALS[signal.kind], event.by or "a person", signal.message or (signal.outcome or "").replace("_", " ")
    )


def _stood_still(event: events.StoodStill) -> Said:
    since = f"everything was stopped by {event.by} since {instant(event.since)}"
    return Said("goes on", f": {since}: {event.reason or 'no reason'}")


def _said(what: str, by: str, said: str) -> Said:
    return Said(what, (f" by {by}" if by else "") + (f": {said}" if said else ""))


def of_event(event: events.Event) -> Said:
    return _OF_EVENTS[type(event)](event)


_OF_EVENTS: dict[type[Any], Callable[[Any], Said]] = {
    events.WakeAccepted: lambda event: Said("accepted", f"{event.by and f' from {event.by}'}: {event.brief.goal}"),
    events.RunStarted: lambda event: Said(
        f"started with {len(event.skills)} tools", f": {', '.join(skill.name for skill in event.skills)}"
    ),
    events.CallReserved: lambda event: Said(f"set aside {reserved(event)}"),
    events.ModelUnavailable: lambda event: Said(
        "not asked" if event.remedy == "hold" else f"the model gave no answer ({event.error_class})",
        f": {event.message}",
    ),
    events.CancelRequested: lambda event: _said("cancel", event.by, event.reason),
    events.SignalReceived: _signalled,
    events.TurnBroke: lambda _: Said("the agent broke"),
    events.StoodStill: _stood_still,
}
_OF_FACTS: dict[type[Any], Callable[[Any], Said]] = {
    facts.CallAsked: lambda fact: Said(
        f"asked the model to {fact.phase} (call {fact.call})",
        f", telling it: {'; '.join(map(str, fact.told))}" if fact.told else "",
    ),
    facts.CallPutOff: lambda fact: Said(f"the model is asked again at {instant(fact.retry_at)}"),
    facts.CallLost: lambda fact: Said(f"the reply to call {fact.call} is lost, which counts as {fact.tokens} tokens"),
    facts.RequestSent: lambda fact: Said(
        f"sent {_which(fact.pending.name, fact.pending.attempt)}",
        f": {call_of(fact.pending.action)}, answer due by {instant(fact.pending.deadline_at)}",
    ),
    facts.RetrySet: lambda fact: Said(
        f"{_which(fact.pending.name, fact.pending.attempt)} follows at {instant(fact.retry_at)}"
    ),
    facts.Slept: lambda fact: Said(f"waits until {instant(fact.until)}", f": {fact.why}"),
    facts.PersonAsked: lambda fact: pauses(fact.ask),
    facts.Resumed: lambda _: Said("the run goes on"),
    facts.Reopened: lambda _: Said("the run goes on, reopened"),
    facts.Ended: lambda fact: Said(f"the run ended: {fact.status} ({fact.ending_class})", f": {fact.reason}"),
}


def pauses(ask: Approval | Question | Stop) -> Said:
    match ask:
        case Approval(proposal=proposal, reason=reason):
            return Said(f"{PAUSES}a person's approval of {proposed(proposal)}", f": {reason}")
        case Question(ask=asked):
            return Said(f"{PAUSES}a person's answer", f": {asked.question}")
        case Stop(ending_class=ending_class, reason=reason):
            return Said(f"{PAUSES}a person ({ending_class})", f": {reason}")
