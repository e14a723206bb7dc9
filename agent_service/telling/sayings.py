"""An entry of the journal in one line of plain text for people.

A model has the name it gave itself, so that a script is known as a script.
"""

from typing import assert_never

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
from agent_service.core.tools.attempts import Pending
from agent_service.core.waiting import Asking, NeedsPerson, Sleeping
from agent_service.run.moments import Moment
from agent_service.telling.acts import Act, Name, act_of, settled
from agent_service.telling.plain import clipped, instant, one_line
from agent_service.telling.rulings import Ruling, rulings
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


def say(moment: Moment) -> str:
    return one_line("; ".join((_happened(moment), *consequences(moment))), MAX_SAYING)


def cut(text: str) -> str:
    return clipped(text, MAX_SAYING)


def consequences(moment: Moment) -> tuple[str, ...]:
    over = () if moment.reopened else map(acted, settled(moment))
    return tuple(filter(None, (*over, _ending(moment), sending(moment), asking(moment))))


def speaker(model: str) -> str:
    return f"the script {model} (no language model)" if "script" in model.casefold() else model


def call_of(action: Action) -> str:
    return f"{action.tool} {one_line(action.command, 64)}"


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


def _happened(moment: Moment) -> str:
    match moment.event:
        case ModelReplied(model=model):
            return f"{'; '.join(map(ruled, rulings(moment)))} (by {speaker(model)})"
        case ModelUnavailable() as event:
            return unavailable(event)
        case ToolReturned() | TimerFired():
            act = act_of(moment)
            return acted(act) if act else _due(moment)
        case TurnBroke():
            return "the agent broke"
        case StoodStill() as event:
            return went_on(event)
        case other:
            return from_people(other)


def unavailable(event: ModelUnavailable) -> str:
    if event.remedy == "hold":
        return f"not asked: {event.message}"
    return f"the model gave no answer ({event.error_class}): {event.message}"


def went_on(event: StoodStill) -> str:
    return f"goes on: everything was stopped by {event.by} since {instant(event.since)}: {event.reason or 'no reason'}"


def reserved(event: CallReserved) -> str:
    cost = "price not known" if event.reserve.cost_usd is None else f"{event.reserve.cost_usd:.4f} USD"
    return f"at most {event.reserve.tokens} tokens ({cost}) for call {event.call} to {event.model}"


def from_people(event: WakeAccepted | RunStarted | CallReserved | CancelRequested | SignalReceived) -> str:
    match event:
        case CallReserved():
            return f"set aside {reserved(event)}"
        case WakeAccepted(goal=goal):
            return f"accepted{_from(event.by)}: {goal}"
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


def _due(moment: Moment) -> str:
    match moment.before and moment.before.waiting:
        case NeedsPerson():
            return "nobody answered in time"
        case Sleeping():
            return "the wait is over"
    return "the time has come"


def _from(by: str) -> str:
    return f" (from {by})" if by else ""


def ruled(ruling: Ruling) -> str:
    if ruling.status == "ok" and isinstance(ruling.decision, Ask | Wait):
        return gist(ruling.decision)
    if ruling.status == "ok":
        return f"{DONE[ruling.phase]}: {gist(ruling.decision)}"
    return f"{ruling.phase} {ruling.status.replace('_', ' ')}: {ruling.why or gist(ruling.decision)}"


def acted(act: Act) -> str:
    attempt = f" attempt {act.attempt}" if act.attempt > 1 else ""
    what = act.error.message if act.error else act.summary
    ran = f" ({act.execution})" if act.execution and str(act.execution) else ""
    which = f"{request_of(act.name)}{attempt}: {act.tool}"
    return f"{which} {OUTCOMES[act.status]}{ran}" + (f": {what}" if what else "")


def request_of(name: Name) -> str:
    step, task, asked_in = name
    return f"step {step}, {task} of round {asked_in}" if task else f"step {step}"


def _ending(moment: Moment) -> str:
    after = moment.after
    if moment.ended:
        return f"the run ended: {after.status} ({after.ending_class}): {after.reason}"
    if moment.paused:
        why = f"({after.ending_class}): {after.reason}" if after.stop else f"and {after.summary}"
        return f"the run pauses {why}"
    if moment.reopened:
        return "; ".join(("the run goes on, reopened", *map(acted, settled(moment))))
    if moment.waits:
        return after.summary
    return "the run goes on" if moment.resumed else ""


def sending(moment: Moment) -> str:
    later = moment.retry
    follows = f"{attempt_of(later.pending)} follows at {instant(later.retry_at)}" if later and later.retry_at else ""
    return "; ".join(filter(None, (*map(sent_off, moment.sent), follows)))


def sent_off(pending: Pending) -> str:
    return f"sent {attempt_of(pending)}, answer due by {instant(pending.deadline_at)}"


def attempt_of(pending: Pending) -> str:
    return f"{request_of(pending.name)} ({call_of(pending.action)}), attempt {pending.attempt}"


def asking(moment: Moment) -> str:
    if moment.asked:
        return f"asked the model to {moment.asked.phase} (call {moment.asked.call})" + _told(moment.asked)
    if moment.put_off:
        return f"the model is asked again at {instant(moment.put_off[1])}"
    return ""


def _told(asking: Asking) -> str:
    return f", telling it: {'; '.join(asking.told)}" if asking.told else ""
