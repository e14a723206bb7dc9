"""What happened in plain text: events, facts and decisions, each in one wording.

A model has the name it gave itself, so that a script is known as a script.
"""

from typing import assert_never

from agent_service.core.attempts import AGAIN, Pending
from agent_service.core.brief import Limits
from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    RunStarted,
    SignalReceived,
    StoodStill,
    TimerFired,
    ToolReturned,
    TurnBroke,
    WakeAccepted,
)
from agent_service.core.facts import (
    AttemptAnswered,
    CallAsked,
    CallLost,
    CallPutOff,
    Decided,
    Ended,
    Fact,
    Name,
    PersonAsked,
    Reopened,
    RequestSent,
    Resumed,
    RetrySet,
    Slept,
    StepFinished,
    TaskFinished,
)
from agent_service.core.phases import (
    Action,
    Ask,
    Decision,
    Digest,
    Framing,
    Next,
    Phase,
    Plan,
    Reflection,
    Refusal,
    Unusable,
    Verification,
    Wait,
)
from agent_service.core.waiting import Approval, Question, Stop
from agent_service.history.plain import instant, one_line
from agent_service.history.results import execution_of, result_of, summary_of_answer
from agent_service.run.journal import Record
from schemas.events import Signal, SignalKind

MAX_SAYING = 500

DONE = {
    Phase.VERIFY: "verified",
    Phase.FRAME: "framed",
    Phase.PLAN: "planned",
    Phase.ACT: "acted",
    Phase.REFLECT: "reflected",
    Phase.COMPACT: "compacted",
}
SIGNALS: dict[SignalKind, str] = {
    "message": "Message",
    "answer": "Answer",
    "approve": "Approved",
    "reject": "Rejected",
    "resume": "Resumed",
    "raise_budget": "Budget raised",
}
OUTCOMES = {
    "ok": "ok",
    "error": "failed",
    "continuation": "asks for more first",
    "budget": "may gather no more",
    "late": "came after the run's end, which it does not change",
    "refused": "is not what the run waited for",
}


def say(record: Record) -> str:
    """The entry in one line."""
    return one_line("; ".join((happened(record), *consequences(record))), MAX_SAYING)


def consequences(record: Record) -> tuple[str, ...]:
    """What the event led to, but for what became of what it brought itself."""
    answered = {answer.name for answer in record.all(AttemptAnswered)}
    return tuple(filter(None, (_consequence(fact, answered) for fact in record.facts)))


def covered_by(over: StepFinished | TaskFinished, answered: set[Name]) -> bool:
    """Whether an answer of the same entry ended it, and tells more of it."""
    if isinstance(over, StepFinished):
        return any(step == over.step and task in ("", AGAIN) for step, task, _ in answered)
    return any(step == over.step and of(task) == over.task for step, task, _ in answered)


def _consequence(fact: Fact, answered: set[Name]) -> str:
    match fact:
        case StepFinished() | TaskFinished():
            name = fact.name if isinstance(fact, TaskFinished) else (fact.step, "", 0)
            return "" if covered_by(fact, answered) else finished(request_of(name), fact)
        case RequestSent(pending=pending):
            return sent_off(pending)
        case RetrySet(pending=pending, retry_at=at):
            return f"{attempt_of(pending)} follows at {instant(at)}"
    return _of_the_model(fact) or _turning_point(fact)


def _of_the_model(fact: Fact) -> str:
    match fact:
        case CallAsked() as asked:
            return asked_for(asked)
        case CallPutOff(retry_at=at):
            return f"the model is asked again at {instant(at)}"
        case CallLost(call=call, tokens=tokens):
            return f"the reply to call {call} is lost, which counts as {tokens} tokens"
        case Slept(until=until, why=why):
            return f"waits until {instant(until)}: {why}"
    return ""


def _turning_point(fact: Fact) -> str:
    match fact:
        case PersonAsked(ask=Approval(reason=reason)):
            return f"the run pauses and waits for approval: {reason}"
        case PersonAsked(ask=Question(ask=ask)):
            return f"the run pauses and asks: {ask.question}"
        case PersonAsked(ask=Stop(ending_class=ending_class, reason=reason)):
            return f"the run pauses ({ending_class}): {reason}"
        case Resumed():
            return "the run goes on"
        case Reopened():
            return "the run goes on, reopened"
        case Ended(status=status, ending_class=ending_class, reason=reason):
            return f"the run ended: {status} ({ending_class}): {reason}"
    return ""


def of(task: str) -> str:
    """The task that a request is of: its own, or the one that is asked again."""
    return task.removesuffix(f".{AGAIN}")


def happened(record: Record) -> str:
    event = record.event
    match event:
        case ModelReplied(model=model):
            return f"{'; '.join(decided(event, one) for one in record.all(Decided))} (by {speaker(model)})"
        case ModelUnavailable():
            return unavailable(event)
        case ToolReturned() | TimerFired():
            return "; ".join(answered(record, answer) for answer in record.all(AttemptAnswered)) or _due(record)
        case TurnBroke():
            return "the agent broke"
        case StoodStill():
            return went_on(event)
        case WakeAccepted() | RunStarted() | CallReserved() | CancelRequested() | SignalReceived():
            return from_people(event)
    assert_never(event)


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


def decision_of(reply: ModelReplied, one: Decided) -> Decision:
    return reply.plan if one.along and reply.plan is not None else reply.decision


def decided(reply: ModelReplied, one: Decided) -> str:
    decision = decision_of(reply, one)
    if one.status == "ok" and isinstance(decision, Ask | Wait):
        return gist(decision)
    if one.status == "ok":
        return f"{DONE[one.phase]}: {gist(decision)}"
    return f"{one.phase} {one.status}: {one.why or gist(decision)}"


def gist(decision: Decision) -> str:
    match decision:
        case Framing(goal_statement=goal):
            return goal
        case Plan() | Ask() | Wait():
            return _next(decision)
        case Reflection(verdict=verdict, summary=summary):
            return f"{verdict}: {summary}"
        case Verification(holds=holds, reason=reason):
            return f"{'holds' if holds else 'does not hold'}: {reason}"
        case Digest(memory=memory):
            return f"{len(memory)} facts take the place of the older notes"
        case Refusal(category=category, explanation=explanation):
            return f"{category}: {explanation}" if explanation else category
        case Unusable(reason=reason):
            return reason
    assert_never(decision)


def _next(chosen: Next) -> str:
    match chosen:
        case Plan(rationale=why):
            calls = ", ".join(map(call_of, chosen.actions))
            return f"{calls}: {why}" if why else calls
        case Ask(question=question):
            return f"asks a person: {question}"
        case Wait(why=why):
            return f"waits: {why}"


def unavailable(event: ModelUnavailable) -> str:
    if event.remedy == "hold":
        return f"not asked: {event.message}"
    return f"the model gave no answer ({event.error_class}): {event.message}"


def reserved(event: CallReserved) -> str:
    cost = "price not known" if event.reserve.cost_usd is None else f"{event.reserve.cost_usd:.4f} USD"
    return f"at most {event.reserve.tokens} tokens ({cost}) for call {event.call} to {event.model}"


def asked_for(asked: CallAsked) -> str:
    told = f", telling it: {'; '.join(asked.told)}" if asked.told else ""
    return f"asked the model to {asked.phase} (call {asked.call}){told}"


def call_named(call: int, phase: Phase) -> str:
    return f"model call {call} ({phase})"


# Requests


def call_of(action: Action) -> str:
    return f"{action.tool} {one_line(action.command, 64)}"


def proposed(proposal: Plan | Framing) -> str:
    return call_of(proposal.action) if isinstance(proposal, Plan) else "a new framing"


def request_of(name: Name) -> str:
    step, task, asked_in = name
    return f"step {step}, {task} of round {asked_in}" if task else f"step {step}"


def attempt_of(pending: Pending) -> str:
    return f"{request_of(pending.name)} ({call_of(pending.action)}), attempt {pending.attempt}"


def sent_off(pending: Pending) -> str:
    return f"sent {attempt_of(pending)}, answer due by {instant(pending.deadline_at)}"


def answered(record: Record, answer: AttemptAnswered) -> str:
    attempt = f" attempt {answer.attempt}" if answer.attempt > 1 else ""
    what = answer.error.message if answer.error else summary_of_answer(record, answer)
    execution = execution_of(result_of(record, answer))
    ran = f" ({execution})" if execution and str(execution) else ""
    which = f"{request_of(answer.name)}{attempt}: {answer.tool}"
    return f"{which} {OUTCOMES[answer.status]}{ran}" + (f": {what}" if what else "")


def finished(which: str, fact: StepFinished | TaskFinished) -> str:
    return f"{which}: {fact.tool} {OUTCOMES[fact.status]}: {fact.summary}"


# People


def went_on(event: StoodStill) -> str:
    return f"goes on: everything was stopped by {event.by} since {instant(event.since)}: {event.reason or 'no reason'}"


def from_people(event: WakeAccepted | RunStarted | CallReserved | CancelRequested | SignalReceived) -> str:
    match event:
        case CallReserved():
            return f"set aside {reserved(event)}"
        case WakeAccepted(brief=brief):
            return f"accepted{_from(event.by)}: {brief.goal}"
        case RunStarted(skills=skills):
            return f"started with {len(skills)} tools: {', '.join(skill.name for skill in skills)}"
        case CancelRequested(reason=reason):
            return f"cancel{_from(event.by)}: {reason}"
        case SignalReceived(signal=signal):
            return f"signal {signal.kind}{_from(event.by)}: {signal.message or _besides(signal)}"
    assert_never(event)


def in_their_words(event: SignalReceived) -> str:
    signal, who = event.signal, event.by or "a person"
    said = signal.message or (signal.outcome or "").replace("_", " ")
    return f"{who}: {said}" if said else f"by {who}"


def _besides(signal: Signal) -> str:
    said = signal.outcome or signal.arguments_hash or signal.signal_id
    return said.replace("_", " ")


def _due(record: Record) -> str:
    return "the time has come" if isinstance(record.event, TimerFired) else "a result"


def _from(by: str) -> str:
    return f" (from {by})" if by else ""
