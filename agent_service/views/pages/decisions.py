"""decisions.md: the run's diary, entry by entry."""

from collections.abc import Iterator, Sequence
from datetime import datetime

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
    Decided,
    Ended,
    LimitsRaised,
    PersonAsked,
    RequestSent,
    StepFinished,
)
from agent_service.core.phases import (
    Ask,
    Decision,
    Digest,
    Framing,
    Plan,
    Reflection,
    Refusal,
    Unusable,
    Verdict,
    Verification,
    Wait,
)
from agent_service.core.state import RunState
from agent_service.history.plain import duration, instant
from agent_service.history.results import Execution, execution_of, result_of, summary_of_answer
from agent_service.history.words import OUTCOMES, call_of, consequences, decision_of, request_of, reserved, speaker
from agent_service.run.journal import Record
from agent_service.views.pages.given import limit_lines
from agent_service.views.pages.markdown import (
    bullets,
    code,
    fenced,
    inline,
    json_block,
    numbered,
    page,
    section,
    sentence,
)
from agent_service.views.pages.progress import reasons
from agent_service.views.pages.proofs import claims, items_to_prove
from agent_service.views.pages.standing import opening
from agent_service.views.pages.told import Told


def decisions_page(told: Told) -> str:
    run, records = told.run, told.records
    intro = (
        f"Run {code(run.run_id)}, told from its journal. The number in a heading is the journal's entry, the time in "
        f"brackets how long after the entry before. `agentic prompt {run.run_id} --call N` shows what a call was told."
    )
    before = (records[0], *records)
    diary = (_entry(run, record, earlier.at) for record, earlier in zip(records, before, strict=False))
    return page("Decisions", *opening(run), intro, *diary)


def _entry(run: RunState, record: Record, before: datetime) -> str:
    title, blocks = _told(run, record)
    followed = "; ".join(map(inline, consequences(record)))
    heading = f"{record.entry.seq}. {title} · {instant(record.at)} ({duration(record.at - before)})"
    return section(heading, *blocks, f"*Then:* {sentence(followed)}" if followed else "")


def _told(run: RunState, record: Record) -> tuple[str, Iterator[str]]:
    match record.event:
        case ModelReplied() as reply:
            return headline(record.all(Decided)), thoughts(run, record, reply)
        case ModelUnavailable(error_class=error_class, message=message):
            return "No answer from the model", iter((f"{code(error_class)}: {inline(message)}",))
        case ToolReturned() | TimerFired():
            return _act_title(record), _acts(record)
        case TurnBroke(reason=reason):
            return "The agent broke", iter((sentence(inline(reason)),))
        case StoodStill(since=since, by=by, reason=reason):
            told = f"Everything was stopped since {instant(since)}: {inline(reason) or 'no reason was given'}"
            return "Goes on", iter((sentence(told), *_who(by)))
        case other:
            return _from_people(record, other)


def _from_people(
    record: Record, event: WakeAccepted | RunStarted | CallReserved | CancelRequested | SignalReceived
) -> tuple[str, Iterator[str]]:
    match event:
        case CallReserved():
            text = inline(reserved(event))
            return "Set aside", iter((sentence(f"{text[0].upper()}{text[1:]}"),))
        case WakeAccepted(goal=goal):
            return "Accepted", iter((f"The goal: {inline(goal, 400)}", *_who(event.by)))
        case RunStarted(skills=skills):
            return "Started", iter((f"Tools on offer: {', '.join(code(s.name) for s in skills) or 'none'}.",))
        case CancelRequested(reason=reason):
            return "Cancel", iter((f"Reason: {inline(reason)}", *_who(event.by)))
        case SignalReceived():
            return f"Signal: {event.signal.kind}", _signal(record, event)


def _signal(record: Record, event: SignalReceived) -> Iterator[str]:
    yield f"From outside, as {code(event.signal.signal_id)}."
    yield from _who(event.by)
    if event.signal.arguments_hash:
        yield f"Of what has the hash {code(event.signal.arguments_hash)}."
    if event.signal.outcome:
        yield f"Of what was in doubt: {code(event.signal.outcome)}."
    if event.signal.message:
        yield fenced(event.signal.message)
    for raised in record.all(LimitsRaised):
        yield f"The limits are now:\n\n{bullets(limit_lines(raised.limits))}"


def _who(by: str) -> Iterator[str]:
    if by:
        yield f"Asked for by {code(by)}."


def _act_title(record: Record) -> str:
    if answer := record.first(AttemptAnswered):
        answered = "Result" if isinstance(record.event, ToolReturned) else "No result"
        return f"{answered} of {request_of(answer.name)}, attempt {answer.attempt}"
    if any(step.status == "budget" for step in record.all(StepFinished)):
        return "Nothing more is gathered"
    for sent in record.all(RequestSent):
        return f"Retry of {request_of(sent.pending.name)}, attempt {sent.pending.attempt}"
    return "Out of time" if record.first(Ended) or record.first(PersonAsked) else "The wait is over"


def _acts(record: Record) -> Iterator[str]:
    for answer in record.all(AttemptAnswered):
        execution = execution_of(result_of(record, answer))
        yield f"{code(answer.tool)}: **{OUTCOMES[answer.status]}**."
        if answer.error:
            retryable = "may be tried again" if answer.error.retryable else "not to be tried again"
            yield f"{code(answer.error.error_class)}, {retryable}:"
            yield fenced(answer.error.message)
        elif summary := summary_of_answer(record, answer):
            yield fenced(summary)
        if execution:
            yield from _execution(execution)


def _execution(execution: Execution) -> Iterator[str]:
    if str(execution):
        yield f"As its executor tells: {sentence(inline(str(execution)))}"
    if execution.stderr:
        yield f"On stderr:\n\n{fenced(execution.stderr)}"


def headline(decided: Sequence[Decided]) -> str:
    return " and ".join(map(_phase, decided)).capitalize()


def thoughts(run: RunState, record: Record, reply: ModelReplied) -> Iterator[str]:
    usage = reply.usage
    cost = "price not known" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD"
    cached = f" ({usage.cache_read_tokens} from the cache)" if usage.cache_read_tokens else ""
    spent = f"{usage.input_tokens} tokens in{cached}, {usage.output_tokens} out, {cost}"
    yield f"By {inline(speaker(reply.model))}, call {reply.call}: {spent}."
    if reply.provenance and reply.provenance.cache_miss:
        yield f"The provider's prompt cache was missed: {sentence(inline(reply.provenance.cache_miss))}"
    for one in record.all(Decided):
        yield from _decision(run, record, decision_of(reply, one), one)
        if one.status == "ignored":
            yield "Not carried out: the reflection does not go on."
        if one.why:
            error_class = f" ({code(one.error_class)})" if one.error_class else ""
            yield f"**Refused**{error_class}: {inline(one.why)}"


def _phase(one: Decided) -> str:
    return f"{one.phase} (try {one.attempt})" if one.attempt > 1 else one.phase.value


def _decision(run: RunState, record: Record, decision: Decision, one: Decided) -> Iterator[str]:
    match decision:
        case Framing() as framing:
            yield from _framed(framing)
        case Plan() as plan:
            yield from _planned(run, plan, one.step)
        case Ask() | Wait() | Verification() as other:
            yield from _asked_or_judged(other)
        case Reflection() as reflection:
            yield from _reflected(record, reflection)
        case Digest(memory=memory):
            yield f"Takes the place of the older notes:\n\n{bullets(map(inline, memory)) or '(nothing)'}"
        case Refusal(category=category, explanation=explanation):
            yield f"**Refused to answer** ({code(category)}). {inline(explanation)}"
        case Unusable(reason=reason, raw=raw):
            yield f"**No valid decision.** {inline(reason)}"
            yield fenced(raw) if raw else ""


def _planned(run: RunState, plan: Plan, step: int) -> Iterator[str]:
    for number, action in enumerate(plan.actions, start=step):
        yield f"**Step {number}: {code(call_of(action))}**"
        yield json_block(action.payload)
    yield reasons(run, plan)


def _asked_or_judged(decision: Ask | Wait | Verification) -> Iterator[str]:
    match decision:
        case Ask():
            yield from _question(decision)
        case Wait(why=why, seconds=seconds, until=until):
            how_long = f"until {instant(until)}" if until else f"for {seconds or 0:g} s"
            yield f"**Wait** {how_long}: {inline(why)}"
        case Verification(holds=holds, reason=reason, doubted=doubted):
            yield f"**{'It holds' if holds else 'It does not hold'}.** {inline(reason)}"
            yield f"Doubted: {', '.join(map(code, doubted))}." if doubted else ""


def _question(ask: Ask) -> Iterator[str]:
    yield f"**A question to a person:** {inline(ask.question)}"
    yield bullets(map(inline, ask.choices))
    yield f"What was tried: {inline(ask.tried)}" if ask.tried else ""
    yield f"What an answer would change: {inline(ask.would_change)}" if ask.would_change else ""


def _framed(framing: Framing) -> Iterator[str]:
    yield f"**The goal.** {inline(framing.goal_statement)}"
    yield f"Done when:\n\n{items_to_prove(framing)}"
    notes = [f"Constraint: {inline(text)}" for text in framing.constraints]
    notes += [f"Assumed or unknown: {inline(text)}" for text in framing.assumptions]
    notes += [f"Hypothesis: {inline(framing.hypothesis)}"] if framing.hypothesis else []
    yield bullets(notes)


def _reflected(record: Record, reflection: Reflection) -> Iterator[str]:
    word = "Reframe, because" if reflection.verdict is Verdict.REFRAME else reflection.verdict.capitalize()
    yield f"**{word}:** {inline(reflection.summary)}"
    learned = (f"- Learned: {inline(fact)}" for fact in reflection.facts)
    yield "\n".join((*claims(record, reflection), *learned))
    if reflection.outline is not None:
        yield f"The outline is now:\n\n{numbered(reflection.outline) or '(empty)'}"
    if reflection.outcome:
        yield f"Outcome: {inline(reflection.outcome)}"
