"""What people say to a run: messages, answers, rulings, larger budgets.

It counts at once, and the model is asked what follows. A ruling names what waits for it by its hash; any other is
refused. The deadline stands still while a person is waited for, unless the caller named it.
"""

from datetime import datetime

from agent_service.core import endings, limits
from agent_service.core.effects import Transition
from agent_service.core.events import SignalReceived, TimerFired
from agent_service.core.graph import continuing
from agent_service.core.model import answering, asking, notes, timing
from agent_service.core.model.framing import adopt_as_allowed
from agent_service.core.model.planning import carry_out, writes
from agent_service.core.people import approving, petition
from agent_service.core.phases import Framing, Phase, Plan
from agent_service.core.state import Ruling, RunState, replace
from agent_service.core.tools import doubting
from agent_service.core.waiting import (
    Asking,
    Deciding,
    Ended,
    ForAnswer,
    ForApproval,
    ForEvidence,
    ForModel,
    ForPerson,
    Planned,
    Waiting,
)
from schemas.events import Signal

MAX_SIGNALS = 200
"""Signals that a run hears and knows again by id. Rulings and answers that it asked for are heard beyond that."""
ASKED_FOR = frozenset({"approve", "reject", "answer"})
NOTHING_ASKED = {
    "approve": "nothing waits for an approval",
    "reject": "nothing waits for an approval",
    "answer": "no question waits for an answer: a message is heard at any time",
}
VOID = "what was planned is not carried out, because a person said something newer"


def deaf_to(state: RunState, event: SignalReceived) -> str:
    if len(state.signals) < MAX_SIGNALS or event.signal.kind in ASKED_FOR:
        return ""
    return f"it has heard {MAX_SIGNALS} signals, and hears no more: what is to be added is for a new run"


def hear(state: RunState, event: SignalReceived) -> Transition | str:
    return _unasked(event) or Transition(state=told(state, event))


def hear_while_paused(state: RunState, event: SignalReceived) -> Transition | str:
    waiting, signal = state.waiting, event.signal
    assert isinstance(waiting, ForPerson)
    if signal.kind != "answer" and (refused := _unasked(event)):
        return refused
    if signal.kind == "message":
        return Transition(state=told(state, event))
    heard = told(limits.stood_still(state, waiting.since, event.at), event)
    if signal.kind == "reject":
        return endings.cancel(heard, signal.message or "rejected by a person", at=event.at)
    if waiting.stop.ending_class == "budget_attempts":
        heard = limits.with_more_attempts(heard)
    said, held = heard.heard > heard.shown, waiting.held
    if isinstance(held, ForEvidence):
        held = continuing.stood_still(held, event.at - waiting.since)
    return go_on(replace(heard, waiting=held), at=event.at, said=said)


def hear_while_waiting(state: RunState, event: SignalReceived) -> Transition | str:
    if refused := _unasked(event):
        return refused
    heard = told(state, event)
    if event.signal.message:
        why = "the wait is over, because a person said something"
        return asking.think_anew(replace(heard, waiting=Deciding()), at=event.at, feedback=(why,))
    return timing.over(heard, at=event.at) if event.signal.kind == "resume" else Transition(state=heard)


def hear_answer(state: RunState, event: SignalReceived) -> Transition | str:
    waiting, signal = state.waiting, event.signal
    assert isinstance(waiting, ForAnswer)
    match signal.kind:
        case "approve" | "reject":
            return NOTHING_ASKED[signal.kind]
        case "answer" | "resume" if not signal.message:
            return "it waits for an answer to its question, which needs a message"
    if not signal.message:
        return _rests_on(told(state, event), waiting, state.brief.limits.answer_s)
    heard = told(limits.stood_still(state, waiting.since, event.at), event)
    return answering.answered(heard, at=event.at, by_message=signal.kind == "message")


def hear_ruling(state: RunState, event: SignalReceived) -> Transition | str:
    waiting, signal = state.waiting, event.signal
    assert isinstance(waiting, ForApproval)
    if flaw := _flaw_of_ruling(state, waiting, event):
        return flaw
    if signal.kind not in ("approve", "reject") and not signal.message:
        return _rests_on(told(state, event), waiting, state.brief.limits.approval_s)
    heard = told(limits.stood_still(state, waiting.since, event.at), event)
    held = continuing.stood_still(waiting.held, event.at - waiting.since) if waiting.held else Deciding()
    running = replace(heard, waiting=held)
    ruled = continuing.heeding(running, before=state)
    match signal.kind:
        case "approve":
            return _approved(ruled, waiting, by=event.by, at=event.at)
        case "reject":
            ruling = _ruling(ruled, waiting, "rejected", by=event.by, reason=_reason(signal))
            return _refused(ruled, waiting, ruling, at=event.at)
    if waiting.held:
        return continuing.overruled(running, waiting, at=event.at)
    return asking.think_anew(running, at=event.at, feedback=(VOID,))


def on_expiry(state: RunState, event: TimerFired) -> Transition:
    waiting = state.waiting
    assert isinstance(waiting, ForApproval)
    if state.brief.limits.on_expiry == "escalate":
        return endings.escalate(state, "approval_expired", f"nobody approved in time: {waiting.reason}", at=event.at)
    held = continuing.stood_still(waiting.held, event.at - waiting.since) if waiting.held else Deciding()
    running = replace(limits.stood_still(state, waiting.since, event.at), waiting=held)
    expired = _ruling(running, waiting, "expired", by="", reason="nobody decided in time")
    return _refused(running, waiting, expired, at=event.at)


def go_on(state: RunState, *, at: datetime, said: bool) -> Transition:
    """Go on after a pause. `said`: the model was not told yet what a person said, so no write goes past it."""
    match state.waiting:
        case Planned(plan=plan):
            running = replace(state, waiting=Deciding())
            if said and writes(state, plan):
                return asking.think_anew(running, at=at, feedback=(VOID,))
            return carry_out(running, plan, at=at)
        case ForModel(asking=Asking(phase=Phase.PLAN, feedback=feedback)) if said:
            return asking.think_anew(replace(state, waiting=Deciding()), at=at, feedback=feedback)
        case ForEvidence():
            return continuing.launch(state, at=at)
    return asking.put(state, state.asking, at=at) if state.asking else Transition(state=state)


def told(state: RunState, event: SignalReceived) -> RunState:
    signal = event.signal
    signals, doubts = (*state.signals, signal.signal_id)[-MAX_SIGNALS:], doubting.after_a_word(state, signal)
    heard = replace(state, signals=signals, doubts=doubts, updated_at=event.at)
    if signal.message:
        heard = replace(_noted(heard, signal, signal.message), heard=heard.heard + 1, claim=None, proposed=None)
    if signal.constraints and signal.kind in ("raise_budget", "answer"):
        raised = limits.raised(heard.brief.limits, signal.constraints)
        heard = replace(heard, brief=replace(heard.brief, limits=raised))
    return heard


def _rests_on(state: RunState, waiting: ForAnswer | ForApproval, patience_s: float) -> Transition:
    until = limits.expires_at(state.brief.limits, waiting.since, patience_s)
    if until == waiting.expires_at:
        return Transition(state=state)
    longer = replace(state, waiting=replace(waiting, expires_at=until, entry=state.version))
    return Transition(state=longer, effects=petition.said(longer))


def _noted(state: RunState, signal: Signal, message: str) -> RunState:
    asked = "" if signal.kind == "message" else _what_was_asked(state.waiting)
    noted = notes.with_message(state, message, answers=asked, untrusted=signal.untrusted)
    if signal.untrusted:
        return replace(noted, strangers=state.strangers or f"the message {signal.signal_id}")
    return replace(noted, messages=(*noted.messages, message)[-notes.MOST_MESSAGES :])


def _what_was_asked(waiting: Waiting) -> str:
    match waiting:
        case ForAnswer(ask=ask):
            return ask.question
        case ForApproval(reason=reason):
            return reason
        case Ended(stop=stop):
            return stop.reason
    return ""


def _unasked(event: SignalReceived) -> str:
    return NOTHING_ASKED.get(event.signal.kind, "")


def _flaw_of_ruling(state: RunState, waiting: ForApproval, event: SignalReceived) -> str:
    signal, step = event.signal, _step_of(state, waiting) or None
    match signal.kind:
        case "approve" if (event.said_at or event.at) >= waiting.expires_at:
            return f"it could be approved until {waiting.expires_at:%Y-%m-%dT%H:%M:%SZ}"
        case "answer":
            return "it waits for an approval: approve it, reject it, or send a message"
        case "resume":
            return "it waits for an approval: approve or reject it"
        case "approve" if signal.arguments_hash is None:
            return f"an approval names what it is of: arguments_hash {waiting.subject_hash}"
        case "approve" | "reject" if signal.arguments_hash not in (None, waiting.subject_hash):
            return f"what waits for approval is {waiting.subject_hash}, not {signal.arguments_hash}"
        case "approve" | "reject" if signal.step not in (None, step):
            return f"what waits for approval is {f'step {step}' if step else 'a framing'}, not step {signal.step}"
    return ""


def _ruling(state: RunState, waiting: ForApproval, verdict: approving.Verdict, *, by: str, reason: str = "") -> Ruling:
    subject, step = approving.hash_of(waiting.proposal), _step_of(state, waiting)
    return Ruling(subject_hash=subject, verdict=verdict, by=by, reason=reason, step=step, heard=state.heard)


def _step_of(state: RunState, waiting: ForApproval) -> int:
    return waiting.step or (state.step + 1 if isinstance(waiting.proposal, Plan) else 0)


def _reason(signal: Signal) -> str:
    return "" if signal.untrusted else signal.message or ""


def _approved(state: RunState, waiting: ForApproval, *, by: str, at: datetime) -> Transition:
    ruled = _remembered(state, waiting, _ruling(state, waiting, "approved", by=by))
    if waiting.held:
        return continuing.allowed(ruled, waiting, at=at)
    match waiting.proposal:
        case Plan() as plan:
            return carry_out(ruled, plan, at=at)
        case Framing() as framing:
            return adopt_as_allowed(ruled, framing, at=at)


def _remembered(state: RunState, waiting: ForApproval, ruling: Ruling) -> RunState:
    return notes.with_ruling(approving.with_ruling(state, ruling), waiting.proposal, ruling, task=waiting.task)


def _refused(state: RunState, waiting: ForApproval, ruling: Ruling, *, at: datetime) -> Transition:
    what = "the new framing"
    if isinstance(waiting.proposal, Plan):
        what = f"{waiting.proposal.action.tool} {waiting.proposal.action.command}"
    why = approving.refusal(what, ruling)
    ruled = replace(_remembered(state, waiting, ruling), summary=why)
    if (refused := approving.refused_in_a_row(ruled)) >= approving.MOST_REFUSED:
        return endings.escalate(ruled, "not_approved", f"{refused} times in a row: {why}", at=at)
    if waiting.held:
        return continuing.not_allowed(ruled, waiting, why, at=at)
    return endings.after_progress(ruled, "plan", why, asking.think_anew(ruled, at=at, feedback=(why,)))
