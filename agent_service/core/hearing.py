"""What people say to a run: messages, answers, rulings, larger budgets.

It counts at once, and the model is asked what follows. A ruling names what waits for it by its hash; any other is
refused. The deadline stands still while a person is waited for, unless the caller named it.
"""

from datetime import datetime

from agent_service.core import approving, asking, continuing, endings, finishing, limits, notes, planning
from agent_service.core.events import SignalReceived
from agent_service.core.facts import LimitsRaised, PersonAsked, Ruled
from agent_service.core.framing import adopt
from agent_service.core.phases import Framing, Next, Phase, Plan
from agent_service.core.planning import carry_out, writes
from agent_service.core.state import Ruling, RunState, with_facts
from agent_service.core.waiting import (
    Acting,
    Approval,
    Asking,
    Deciding,
    Ended,
    NeedsPerson,
    Planned,
    Question,
    Stop,
    Thinking,
    Waiting,
)
from agent_service.sentences import Text, instant, say
from schemas.events import Signal
from schemas.values import replace

MAX_SIGNALS = 200
"""Signals that a run hears and knows again by id. Rulings and answers that it asked for are heard beyond that."""
ASKED_FOR = frozenset({"approve", "reject", "answer"})
NOTHING_ASKED = {
    "approve": say("no_approval_awaited"),
    "reject": say("no_approval_awaited"),
    "answer": say("no_answer_awaited"),
}
VOID = say("plan_void")


def ignores(state: RunState, event: SignalReceived) -> Text:
    if len(state.signals) < MAX_SIGNALS or event.signal.kind in ASKED_FOR:
        return ""
    return say("too_many_signals", most=MAX_SIGNALS)


def hear(state: RunState, event: SignalReceived) -> RunState | Text:
    return _unasked(event) or told(state, event)


def hear_when_asked(state: RunState, event: SignalReceived) -> RunState | Text:
    waiting = state.waiting
    assert isinstance(waiting, NeedsPerson)
    match waiting.ask:
        case Approval() as approval:
            return _hear_ruling(state, waiting, approval, event)
        case Question() as question:
            return _hear_answer(state, waiting, question, event)
        case Stop() as stop:
            return _hear_word_on_stop(state, waiting, stop, event)


def _hear_word_on_stop(state: RunState, waiting: NeedsPerson, stop: Stop, event: SignalReceived) -> RunState | Text:
    signal = event.signal
    if signal.kind != "answer" and (refused := _unasked(event)):
        return refused
    if signal.kind == "message":
        return told(state, event)
    after = told(limits.extend_deadline(state, waiting.since), event)
    if stop.ending_class == "budget_attempts":
        after = limits.with_more_attempts(after)
    running = replace(after, waiting=_held_until(waiting, event.at))
    return go_on(running, said=after.words > after.shown)


def _held_until(waiting: NeedsPerson, at: datetime) -> Waiting:
    """What goes on after the pause, which counts against no graph's time."""
    held = waiting.held
    return held.with_later_graphs(at - waiting.since) if isinstance(held, Acting) else held or Deciding()


def hear_while_waiting(state: RunState, event: SignalReceived) -> RunState | Text:
    if refused := _unasked(event):
        return refused
    after = told(state, event)
    if event.signal.message:
        why = say("wait_over")
        return asking.think_anew(replace(after, waiting=Deciding()), feedback=(why,))
    return planning.wake_up(after) if event.signal.kind == "resume" else after


def _hear_answer(state: RunState, waiting: NeedsPerson, question: Question, event: SignalReceived) -> RunState | Text:
    signal = event.signal
    match signal.kind:
        case "approve" | "reject":
            return NOTHING_ASKED[signal.kind]
        case "answer" | "resume" if not signal.message:
            return say("answer_needs_message")
    if not signal.message:
        return _rests_on(told(state, event), waiting, state.brief.limits.answer_s)
    after = told(limits.extend_deadline(state, waiting.since), event)
    return planning.question_answered(after, question, by_message=signal.kind == "message")


def _hear_ruling(state: RunState, waiting: NeedsPerson, approval: Approval, event: SignalReceived) -> RunState | Text:
    signal = event.signal
    if flaw := _flaw_of_ruling(state, waiting, approval, event):
        return flaw
    if signal.kind not in ("approve", "reject") and not signal.message:
        return _rests_on(told(state, event), waiting, state.brief.limits.approval_s)
    after = told(limits.extend_deadline(state, waiting.since), event)
    running = replace(after, waiting=_held_until(waiting, event.at))
    ruled = continuing.heeding(running, before=state)
    match signal.kind:
        case "approve":
            return _approved(ruled, approval, by=event.by)
        case "reject":
            ruling = _ruling(ruled, approval, "rejected", by=event.by, reason=_reason(signal))
            return _refused(ruled, approval, ruling)
    if approval.step:
        return continuing.overruled(running, approval)
    return asking.think_anew(running, feedback=(VOID,))


def on_expiry(state: RunState) -> RunState:
    waiting = state.waiting
    assert isinstance(waiting, NeedsPerson)
    match waiting.ask:
        case Approval() as approval:
            return _on_approval_expired(state, waiting, approval)
        case Question() as question:
            return planning.question_expired(state, question)
    raise AssertionError("a stop has no timer")


def _on_approval_expired(state: RunState, waiting: NeedsPerson, approval: Approval) -> RunState:
    if state.brief.limits.on_expiry == "escalate":
        return endings.escalate(state, "approval_expired", say("approval_expired", why=approval.reason))
    running = replace(limits.extend_deadline(state, waiting.since), waiting=_held_until(waiting, state.updated_at))
    expired = _ruling(running, approval, "expired", by="", reason=say("nobody_decided"))
    return _refused(running, approval, expired)


def go_on(state: RunState, *, said: bool) -> RunState:
    """Go on after a pause. `said`: the model was not told yet what a person said, so no write goes past it."""
    match state.waiting:
        case Planned(plan=plan):
            running = replace(state, waiting=Deciding())
            if said and writes(state, plan):
                return asking.think_anew(running, feedback=(VOID,))
            return carry_out(running, plan)
        case Thinking(asking=Asking(phase=Phase.PLAN, feedback=feedback)) if said:
            return asking.think_anew(replace(state, waiting=Deciding()), feedback=feedback)
        case Acting(graphs=(_, *_)):
            return continuing.launch(state)
    return asking.put(state, state.asking) if state.asking else state


def told(state: RunState, event: SignalReceived) -> RunState:
    signal = event.signal
    signals, doubts = (*state.signals, signal.signal_id)[-MAX_SIGNALS:], finishing.after_a_word(state, signal)
    after = replace(state, signals=signals, doubts=doubts)
    if signal.message:
        after = replace(_noted(after, signal, signal.message), words=after.words + 1, claim=None, proposed=None)
    if signal.constraints and signal.kind in ("raise_budget", "answer"):
        raised = limits.raised(after.brief.limits, signal.constraints)
        after = with_facts(replace(after, brief=replace(after.brief, limits=raised)), LimitsRaised(limits=raised))
    return after


def _rests_on(state: RunState, waiting: NeedsPerson, patience_s: float) -> RunState:
    until = limits.expires_at(state.brief.limits, waiting.since, patience_s)
    if until == waiting.expires_at:
        return state
    longer = replace(state, waiting=replace(waiting, expires_at=until, entry=state.version))
    return with_facts(longer, PersonAsked(ask=waiting.ask, expires_at=until))


def _noted(state: RunState, signal: Signal, message: str) -> RunState:
    asked = "" if signal.kind == "message" else _what_was_asked(state.waiting)
    noted = notes.with_message(state, message, answers=str(asked), untrusted=signal.untrusted)
    if signal.untrusted:
        return replace(noted, tainted_by=state.tainted_by or say("the_message", signal=signal.signal_id))
    return replace(noted, messages=(*noted.messages, message)[-notes.MOST_MESSAGES :])


def _what_was_asked(waiting: Waiting) -> Text:
    match waiting:
        case NeedsPerson(ask=Question(ask=ask)):
            return ask.question
        case NeedsPerson(ask=Approval(reason=reason)):
            return reason
        case Ended(stop=stop):
            return stop.reason
    return ""


def _unasked(event: SignalReceived) -> Text:
    return NOTHING_ASKED.get(event.signal.kind, "")


def _flaw_of_ruling(state: RunState, waiting: NeedsPerson, approval: Approval, event: SignalReceived) -> Text:
    signal, step = event.signal, _step_of(state, approval) or None
    match signal.kind:
        case "approve" if waiting.expires_at and (event.said_at or event.at) >= waiting.expires_at:
            return say("approved_too_late", until=instant(waiting.expires_at))
        case "answer":
            return say("awaits_approval_not_answer")
        case "resume":
            return say("awaits_approval")
        case "approve" if signal.arguments_hash is None:
            return say("approval_needs_hash", hash=approval.subject_hash)
        case "approve" | "reject" if signal.arguments_hash not in (None, approval.subject_hash):
            return say("approval_of_other", hash=approval.subject_hash, named=signal.arguments_hash)
        case "approve" | "reject" if signal.step not in (None, step):
            return say("approval_of_other_step", step=step, named=signal.step)
    return ""


def _ruling(state: RunState, approval: Approval, verdict: approving.Verdict, *, by: str, reason: Text = "") -> Ruling:
    subject, step = approving.hash_of(approval.proposal), _step_of(state, approval)
    return Ruling(subject_hash=subject, verdict=verdict, by=by, reason=reason, step=step, words=state.words)


def _step_of(state: RunState, approval: Approval) -> int:
    return approval.step or (state.step + 1 if isinstance(approval.proposal, Plan) else 0)


def _reason(signal: Signal) -> str:
    return "" if signal.untrusted else signal.message or ""


def _approved(state: RunState, approval: Approval, *, by: str) -> RunState:
    ruled = _remembered(state, approval, _ruling(state, approval, "approved", by=by))
    if approval.step:
        return continuing.allowed(ruled, approval)
    match approval.proposal:
        case Plan() as plan:
            return carry_out(ruled, plan)
        case Framing() as framing:
            return adopt(ruled, framing, _first_choice(ruled))


def _first_choice(state: RunState) -> Next | None:
    """What came along with the framing, unless a person said something since."""
    return state.first_choice if state.words == state.shown else None


def _remembered(state: RunState, approval: Approval, ruling: Ruling) -> RunState:
    ruled = with_facts(
        approving.with_ruling(state, ruling),
        Ruled(
            verdict=ruling.verdict,
            by=ruling.by,
            reason=ruling.reason,
            step=ruling.step,
            task=approval.task,
            round=approval.round,
        ),
    )
    return notes.with_ruling(ruled, approval.proposal, ruling, task=approval.task)


def _refused(state: RunState, approval: Approval, ruling: Ruling) -> RunState:
    what: Text = say("new_framing")
    if isinstance(approval.proposal, Plan):
        what = f"{approval.proposal.action.tool} {approval.proposal.action.command}"
    why = approving.refusal(what, ruling)
    ruled = replace(_remembered(state, approval, ruling), summary=why)
    if (refused := approving.refused_in_a_row(ruled)) >= approving.MOST_REFUSED:
        return endings.escalate(ruled, "not_approved", say("refused_in_a_row", times=refused, why=why))
    if approval.step:
        return continuing.not_allowed(ruled, approval, why)
    return asking.think_anew(ruled, feedback=(why,))
