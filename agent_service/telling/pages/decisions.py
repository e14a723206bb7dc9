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
from agent_service.core.phases import (
    Ask,
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
from agent_service.run.moments import Moment
from agent_service.telling.acts import Act, Execution, act_of
from agent_service.telling.pages.given import limit_lines
from agent_service.telling.pages.markdown import (
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
from agent_service.telling.pages.progress import reasons
from agent_service.telling.pages.proofs import claims, items_to_prove
from agent_service.telling.pages.standing import opening, what_to_do
from agent_service.telling.plain import duration, instant
from agent_service.telling.rulings import Ruling, rulings
from agent_service.telling.sayings import OUTCOMES, call_of, consequences, request_of, reserved, speaker


def decisions_page(moments: Sequence[Moment]) -> str:
    run = moments[-1].after
    told = (
        f"Run {code(run.run_id)}, told from its journal. The number in a heading is the journal's entry, the time in "
        f"brackets how long after the entry before. `agentic prompt {run.run_id} --call N` shows what a call was told."
    )
    before = (moments[0], *moments)
    diary = (_entry(moment, earlier.entry.at) for moment, earlier in zip(moments, before, strict=False))
    return page("Decisions", *opening(run), told, *diary)


def _entry(moment: Moment, before: datetime) -> str:
    title, blocks = _told(moment)
    followed = "; ".join(map(inline, consequences(moment)))
    at = moment.entry.at
    heading = f"{moment.entry.seq}. {title} · {instant(at)} ({duration(at - before)})"
    then = f"*Then:* {sentence(followed)}" if followed else ""
    remedies = what_to_do(moment.after) if moment.ended or moment.paused else ()
    return section(heading, *blocks, *_lost(moment), then, *remedies)


def _lost(moment: Moment) -> Iterator[str]:
    before, after = moment.before, moment.after
    if before is None or after.spent.lost_calls == before.spent.lost_calls:
        return
    call = before.asking.call if before.asking else after.calls
    tokens = after.spent.lost_tokens - before.spent.lost_tokens
    match moment.event:
        case CallReserved():
            why = "A crash cut it off, and it is made again"
        case ModelUnavailable():
            why = "It broke off"
        case _:
            why = "It was given up while it was being made"
    yield f"**The reply to call {call} is lost.** {why}. It was perhaps paid, so it counts as {tokens} tokens."


def _told(moment: Moment) -> tuple[str, Iterator[str]]:
    match moment.event:
        case ModelReplied() as reply:
            ruled = rulings(moment)
            return headline(ruled), thoughts(moment, reply, ruled)
        case ModelUnavailable(error_class=error_class, message=message):
            return "No answer from the model", iter((f"{code(error_class)}: {inline(message)}",))
        case ToolReturned() | TimerFired():
            act = act_of(moment)
            return _act_title(moment, act), _act(act) if act else iter(())
        case TurnBroke(reason=reason):
            return "The agent broke", iter((sentence(inline(reason)),))
        case StoodStill(since=since, by=by, reason=reason):
            told = f"Everything was stopped since {instant(since)}: {inline(reason) or 'no reason was given'}"
            return "Goes on", iter((sentence(told), *_who(by)))
        case other:
            return _from_people(moment, other)


def _from_people(
    moment: Moment, event: WakeAccepted | RunStarted | CallReserved | CancelRequested | SignalReceived
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
            return f"Signal: {event.signal.kind}", _signal(moment, event)


def _signal(moment: Moment, event: SignalReceived) -> Iterator[str]:
    yield f"From outside, as {code(event.signal.signal_id)}."
    yield from _who(event.by)
    if event.signal.arguments_hash:
        yield f"Of what has the hash {code(event.signal.arguments_hash)}."
    if event.signal.outcome:
        yield f"Of what was in doubt: {code(event.signal.outcome)}."
    if event.signal.message:
        yield fenced(event.signal.message)
    limits = moment.after.brief.limits
    if moment.before and limits != moment.before.brief.limits:
        yield f"The limits are now:\n\n{bullets(limit_lines(limits))}"


def _who(by: str) -> Iterator[str]:
    if by:
        yield f"Asked for by {code(by)}."


def _act_title(moment: Moment, act: Act | None) -> str:
    if act:
        answered = "Result" if isinstance(moment.event, ToolReturned) else "No result"
        return f"{answered} of {request_of(act.name)}, attempt {act.attempt}"
    if any(record.status == "budget" for record in moment.finished):
        return "Nothing more is gathered"
    for sent in moment.sent:
        return f"Retry of {request_of(sent.name)}, attempt {sent.attempt}"
    return "Out of time" if moment.ended or moment.paused else "The wait is over"


def _act(act: Act) -> Iterator[str]:
    call = call_of(act.action) if act.action else act.tool
    yield f"{code(call)}: **{OUTCOMES[act.status]}**."
    if act.error:
        retryable = "may be tried again" if act.error.retryable else "not to be tried again"
        yield f"{code(act.error.error_class)}, {retryable}:"
        yield fenced(act.error.message)
    elif act.summary:
        yield fenced(act.summary)
    if act.execution:
        yield from _execution(act.execution)


def _execution(execution: Execution) -> Iterator[str]:
    if str(execution):
        yield f"As its executor tells: {sentence(inline(str(execution)))}"
    if execution.stderr:
        yield f"On stderr:\n\n{fenced(execution.stderr)}"


def headline(ruled: Sequence[Ruling]) -> str:
    return " and ".join(map(_phase, ruled)).capitalize()


def thoughts(moment: Moment, reply: ModelReplied, ruled: Sequence[Ruling]) -> Iterator[str]:
    usage = reply.usage
    cost = "price not known" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD"
    cached = f" ({usage.cache_read_tokens} from the cache)" if usage.cache_read_tokens else ""
    spent = f"{usage.input_tokens} tokens in{cached}, {usage.output_tokens} out, {cost}"
    yield f"By {inline(speaker(reply.model))}, call {reply.call}: {spent}."
    if reply.provenance and reply.provenance.cache_miss:
        yield f"The provider's prompt cache was missed: {sentence(inline(reply.provenance.cache_miss))}"
    for ruling in ruled:
        yield from _decided(moment, ruling)
        if ruling.status == "ignored":
            yield "Not carried out: the reflection does not go on."
        if ruling.why:
            error_class = f" ({code(ruling.error_class)})" if ruling.error_class else ""
            yield f"**Refused**{error_class}: {inline(ruling.why)}"


def _phase(ruling: Ruling) -> str:
    return f"{ruling.phase} (try {ruling.attempt})" if ruling.attempt > 1 else ruling.phase.value


def _decided(moment: Moment, ruling: Ruling) -> Iterator[str]:
    match ruling.decision:
        case Framing() as framing:
            yield from _framed(framing)
        case Plan() as plan:
            yield from _planned(moment.after, plan, ruling.step)
        case Ask() | Wait() | Verification() as other:
            yield from _asked_or_judged(other)
        case Reflection() as reflection:
            yield from _reflected(moment, reflection)
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


def _reflected(moment: Moment, reflection: Reflection) -> Iterator[str]:
    word = "Reframe, because" if reflection.verdict is Verdict.REFRAME else reflection.verdict.capitalize()
    yield f"**{word}:** {inline(reflection.summary)}"
    learned = (f"- Learned: {inline(fact)}" for fact in reflection.facts)
    yield "\n".join((*claims(moment, reflection), *learned))
    if reflection.outline is not None:
        yield f"The outline is now:\n\n{numbered(reflection.outline) or '(empty)'}"
    if reflection.outcome:
        yield f"Outcome: {inline(reflection.outcome)}"
