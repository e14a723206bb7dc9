"""What people say to a run: messages, answers, rulings, larger budgets.

Rules: what is said counts at once. A ruling is of what waits for it, by its hash; one that nothing waits for is
refused. While a person is waited for, the deadline of the run stands still, unless the caller named it.
"""

from datetime import datetime

from agent_service.core import acting, answering, asking, endings, limits, notes, timing
from agent_service.core.effects import Transition
from agent_service.core.events import SignalReceived, TimerFired
from agent_service.core.framing import take_framing
from agent_service.core.phases import Framing, Phase, Plan
from agent_service.core.planning import carry_out
from agent_service.core.replacing import replace
from agent_service.core.state import Ruling, RunState
from agent_service.core.waiting import Deciding, ForAnswer, ForApproval, ForPerson, Planned
from schemas.events import Signal

MAX_SIGNALS = 200
"""Signals whose ids a run remembers, the newest, so that one that is delivered again is not heard again."""
NOTHING_ASKED = {
    "approve": "nothing waits for an approval",
    "reject": "nothing waits for an approval",
    "answer": "no question waits for an answer: a message is heard at any time",
}


def hear(state: RunState, event: SignalReceived) -> Transition | str:
    """While the run goes on: a message, or a larger budget."""
    return _unasked(event) or _heard(state, event)


def hear_while_paused(state: RunState, event: SignalReceived) -> Transition | str:
    """As while it runs, but a signal may let the run go on with what the pause held."""
    signal = event.signal
    if signal.kind != "answer" and (refused := _unasked(event)):
        return refused
    heard = _heard(state, event)
    if isinstance(heard, str) or heard.state is None or signal.kind == "message":
        return heard
    if signal.kind == "reject":
        return endings.cancel(heard.state, signal.message or "rejected by a person", at=event.at)
    assert isinstance(state.waiting, ForPerson)
    return go_on(replace(heard.state, waiting=state.waiting.held), at=event.at)


def hear_while_waiting(state: RunState, event: SignalReceived) -> Transition | str:
    """A message ends a wait: what a person says counts at once."""
    heard = hear(state, event)
    if isinstance(heard, str) or heard.state is None or not event.signal.message:
        return heard
    return timing.over(heard.state, at=event.at)


def hear_answer(state: RunState, event: SignalReceived) -> Transition | str:
    """While a question is open, an answer or a message answers it."""
    signal = event.signal
    if signal.kind in ("approve", "reject"):
        return NOTHING_ASKED[signal.kind]
    if signal.kind == "answer" and not signal.message:
        return "an answer needs a message"
    heard = _heard(state, event)
    if isinstance(heard, str) or heard.state is None or signal.kind not in ("answer", "message"):
        return heard
    assert isinstance(state.waiting, ForAnswer)
    return answering.answered(limits.stood_still(heard.state, state.waiting.since, event.at), at=event.at)


def hear_ruling(state: RunState, event: SignalReceived) -> Transition | str:
    """While something waits for approval: what is decided about it, or a message, after which it is planned anew."""
    waiting, signal = state.waiting, event.signal
    assert isinstance(waiting, ForApproval)
    if flaw := _flaw_of_ruling(state, waiting, signal):
        return flaw
    heard = _heard(state, event)
    if isinstance(heard, str) or heard.state is None:
        return heard
    running = replace(limits.stood_still(heard.state, waiting.since, event.at), waiting=Deciding())
    match signal.kind:
        case "approve":
            return _approved(running, waiting, event)
        case "reject":
            return _refused(
                running,
                waiting,
                Ruling(subject_hash=waiting.subject_hash, verdict="rejected", by=event.by, reason=signal.message or ""),
                at=event.at,
            )
        case "message":
            told = "what waited for approval is not carried out, because a person said something newer"
            return asking.ask(running, Phase.PLAN, at=event.at, feedback=(told,))
    return heard


def on_expiry(state: RunState, event: TimerFired) -> Transition:
    """Nobody ruled in time: by the rule of the run."""
    waiting = state.waiting
    assert isinstance(waiting, ForApproval)
    if state.brief.limits.on_expiry == "escalate":
        return endings.escalate(state, "approval_expired", f"nobody approved in time: {waiting.reason}", at=event.at)
    running = replace(limits.stood_still(state, waiting.since, event.at), waiting=Deciding())
    expired = Ruling(subject_hash=waiting.subject_hash, verdict="expired", by="", reason="nobody decided in time")
    return _refused(running, waiting, expired, at=event.at)


def go_on(state: RunState, *, at: datetime) -> Transition:
    """Let a run go on with what it waits for, after a pause."""
    if isinstance(state.waiting, Planned):
        return carry_out(replace(state, waiting=Deciding()), state.waiting.plan, at=at)
    return asking.put(state, state.asking, at=at) if state.asking else Transition(state=state)


def told(state: RunState, event: SignalReceived) -> RunState | str:
    """The state once the signal is heard: its id, its message, its budgets."""
    signal = event.signal
    if signal.signal_id in state.signals:
        return f"signal {signal.signal_id} was heard already"
    heard = replace(state, signals=(*state.signals, signal.signal_id)[-MAX_SIGNALS:], updated_at=event.at)
    if signal.message:
        noted = notes.with_message(heard, signal.message)
        messages = (*noted.messages, signal.message)[-notes.MOST_MESSAGES :]
        heard = replace(noted, messages=messages, heard=heard.heard + 1)
    if signal.constraints and signal.kind in ("raise_budget", "answer"):
        raised = limits.raised(heard.brief.limits, signal.constraints)
        heard = replace(heard, brief=replace(heard.brief, limits=raised))
    return heard


def _unasked(event: SignalReceived) -> str:
    """Why a ruling or an answer is refused where nothing waits for one."""
    return NOTHING_ASKED.get(event.signal.kind, "") if event.strict else ""


def _heard(state: RunState, event: SignalReceived) -> Transition | str:
    heard = told(state, event)
    return heard if isinstance(heard, str) else Transition(state=heard)


def _flaw_of_ruling(state: RunState, waiting: ForApproval, signal: Signal) -> str:
    match signal.kind:
        case "answer":
            return "it waits for an approval: approve, reject, or send a message"
        case "resume":
            return "it waits for an approval: approve or reject it"
        case "approve" if signal.arguments_hash is None:
            return f"an approval names what it is of: arguments_hash {waiting.subject_hash}"
        case "approve" | "reject" if signal.arguments_hash not in (None, waiting.subject_hash):
            return f"what waits for approval is {waiting.subject_hash}, not {signal.arguments_hash}"
        case "approve" | "reject" if signal.step not in (None, state.step + 1):
            return f"what waits for approval is step {state.step + 1}, not {signal.step}"
    return ""


def _approved(state: RunState, waiting: ForApproval, event: SignalReceived) -> Transition:
    step = state.step + 1 if isinstance(waiting.proposal, Plan) else 0
    ruling = Ruling(subject_hash=waiting.subject_hash, verdict="approved", by=event.by, step=step)
    ruled = replace(state, rulings=(*state.rulings, ruling))
    match waiting.proposal:
        case Plan() as plan:
            reached = limits.reached_before_a_step(ruled, event.at)
            if reached:
                return endings.out_of_budget(
                    ruled, reached, at=event.at, question=asking.next_question(ruled, Phase.PLAN)
                )
            return acting.dispatch(ruled, plan, at=event.at)
        case Framing() as framing:
            return take_framing(ruled, framing, None, at=event.at)


def _refused(state: RunState, waiting: ForApproval, ruling: Ruling, *, at: datetime) -> Transition:
    what = "the new framing"
    if isinstance(waiting.proposal, Plan):
        what = f"{waiting.proposal.action.tool} {waiting.proposal.action.command}"
    why = f"{what} was not approved ({ruling.verdict}){': ' if ruling.reason else ''}{ruling.reason}"
    ruled = replace(state, rulings=(*state.rulings, ruling), summary=why)
    return endings.after_progress(ruled, "plan", why, asking.ask(ruled, Phase.PLAN, at=at, feedback=(why,)))
