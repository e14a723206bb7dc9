"""Signals of people to a run: messages, answers, rulings, larger budgets.

A signal counts at once, and the model is asked for its consequences. A ruling names its subject by hash. The deadline
stands still while the run waits for a person, unless the caller named it.

An answer reopens an escalated run. The person says whether a write in doubt was carried out, or the model looks first;
other requests in flight are awaited, and are in doubt after their deadline.
"""

from datetime import datetime

from agent_service.core import acting, asking, continuing, limits, notes, planning
from agent_service.core.events import SignalReceived
from agent_service.core.facts import Ruled, RulingVerdict, RunReopened
from agent_service.core.framing import adopt
from agent_service.core.phases import Framing, Phase, Plan
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import (
    Acting,
    Approval,
    Deciding,
    Ended,
    Held,
    NeedsPerson,
    OpenCall,
    Pending,
    Planned,
    Question,
    Queued,
    RequestName,
    Sleeping,
    Stop,
    Thinking,
    acting_of,
)
from agent_service.sentences import Text, instant, say
from schemas.events import Outcome, Signal, ToolOutput, ToolResult
from schemas.values import replace

MAX_SIGNALS = 200
"""Signals that a run takes, and recognises by id when they are repeated. Rulings and answers are taken beyond it."""
MOST_RULINGS, MOST_REFUSED = 50, 5
"""Rulings that are kept; refusals in a row, after which the run escalates."""
RULINGS = frozenset({"approve", "reject"})
ASKED_FOR = RULINGS | {"answer"}
RAISING = frozenset({"raise_budget", "answer"})
VOID = say("plan_void")


def on_signal(state: RunState, event: SignalReceived) -> RunState | Text:
    signal, waiting = event.signal, state.waiting
    if signal.signal_id in state.signals:
        return say("signal_known", signal=signal.signal_id)
    if len(state.signals) >= MAX_SIGNALS and signal.kind not in ASKED_FOR:
        return say("too_many_signals", most=MAX_SIGNALS)
    if isinstance(waiting, Ended):
        return _reopen(state, waiting, event)
    if flaw := _flaw(state, event):
        return flaw
    match waiting:
        case NeedsPerson():
            return _on_signal_when_paused(state, waiting, event)
        case Sleeping() if signal.message:
            return asking.restart(with_signal(state, event), feedback=(say("wait_over"),))
        case Sleeping() if signal.kind == "resume":
            return planning.wake_up(with_signal(state, event), waiting)
    return with_signal(state, event)


def _flaw(state: RunState, event: SignalReceived) -> Text:
    signal, ask = event.signal, state.ask
    match ask:
        case Approval() if signal.kind in RULINGS:
            return _flaw_of_ruling(state, ask, event)
        case Approval() if signal.kind in ("answer", "resume"):
            return say("awaits_approval")
        case Question() if signal.kind in ("answer", "resume") and not signal.message:
            return say("answer_needs_message")
        case None if signal.kind == "answer":
            return say("no_answer_awaited")
    return say("no_approval_awaited") if signal.kind in RULINGS else _flaw_of_answer(state, signal)


def _flaw_of_ruling(state: RunState, approval: Approval, event: SignalReceived) -> Text:
    signal, subject, until = event.signal, approval.subject_hash, state.due_at
    step, is_approval = _step_of(state, approval) or None, signal.kind == "approve"
    if is_approval and until and (event.said_at or event.at) >= until:
        return say("approved_too_late", until=instant(until))
    names_it = signal.arguments_hash == subject or (signal.arguments_hash is None and not is_approval)
    return "" if names_it and signal.step in (None, step) else say("approval_of_other", hash=subject, step=step)


def _flaw_of_answer(state: RunState, signal: Signal) -> Text:
    """An answer that names what it answers settles nothing newer."""
    subject, ask, steps = "", state.ask, [state.step]
    if isinstance(ask, Question):
        subject = planning.subject_hash(ask.ask)
    elif isinstance(state.waiting, Ended):
        steps = [step for step, _, _ in _undecided(state, state.waiting)]
    is_of_other = signal.question_hash not in (None, subject) or signal.step not in (None, *steps)
    return say("answer_of_other") if signal.kind == "answer" and is_of_other else ""


def _on_signal_when_paused(state: RunState, waiting: NeedsPerson, event: SignalReceived) -> RunState:
    signal, ask = event.signal, waiting.ask
    is_ruling, is_message = signal.kind in RULINGS, signal.kind == "message"
    if is_message if isinstance(ask, Stop) else not (is_ruling or signal.message):
        return with_signal(state, event)
    running = _going_on(state, waiting.held, waiting.since, event)
    match ask:
        case Question(phase=phase):  # the notes have the answer, or the message sent in its place
            why = say("spoke_meanwhile" if is_message else "was_answered")
            return asking.ask(running, phase, feedback=(why,))
        case Stop(ending_class=ending_class):
            more = limits.with_more_attempts(running) if ending_class == "budget_attempts" else running
            return resume(more)
    if not is_ruling:
        if ask.step:
            return continuing.on_ruling(running, ask, refused=continuing.OVERRULED)
        return asking.restart(running, feedback=(VOID,))
    if signal.kind == "approve":
        return _ruled(running, ask, "approved", by=event.by)
    return _ruled(running, ask, "rejected", by=event.by, reason="" if signal.untrusted else signal.message or "")


def _going_on(state: RunState, held: Held | None, since: datetime, event: SignalReceived | None = None) -> RunState:
    """The run with what it `held`. The time `since` then counts against neither its deadline nor a graph's."""
    after = limits.extend_deadline(state, since)
    after = with_signal(after, event) if event else after
    if isinstance(held, Acting):
        held = held.postponed(graphs=state.updated_at - since)
    return replace(after, waiting=held or Deciding())


def on_expiry(state: RunState, waiting: NeedsPerson) -> RunState:
    match waiting.ask:
        case Question(ask=ask):
            return asking.escalate(state, "unanswered", say("unanswered", question=ask.question))
        case Approval(reason=reason) if state.brief.limits.on_expiry == "escalate":
            return asking.escalate(state, "approval_expired", say("approval_expired", why=reason))
        case Approval() as approval:
            running = _going_on(state, waiting.held, waiting.since)
            return _ruled(running, approval, "expired", reason=say("nobody_decided"))
    raise AssertionError("a stop has no timer")


def resume(state: RunState) -> RunState:
    """Goes on after a pause. A message that the model has not seen yet voids a plan that writes."""
    has_news = state.words > state.shown
    match state.waiting:
        case Planned(plan=plan):
            if has_news and planning.plan_writes(state, plan):
                return asking.restart(state, feedback=(VOID,))
            return planning.carry_out(state, plan)
        case Thinking(asking=OpenCall(phase=Phase.PLAN, feedback=feedback)) if has_news:
            return asking.restart(state, feedback=feedback)
        case Acting(graphs=(_, *_)):
            return continuing.send_ready(state)
    return asking.begin_call(state, state.open_call) if state.open_call else state


def with_signal(state: RunState, event: SignalReceived) -> RunState:
    signal = event.signal
    after = replace(state, signals=(*state.signals, signal.signal_id)[-MAX_SIGNALS:])
    if signal.kind == "answer" and acting.stated_outcome(signal) != "look":
        settled = acting.doubts_asked_about(state)
        after = replace(after, doubts=tuple([doubt for doubt in state.doubts if doubt not in settled]))
    if signal.message:
        after = replace(_noted(after, signal, signal.message), words=after.words + 1, claim=None, proposed=None)
    if signal.constraints and signal.kind in RAISING:
        after = limits.raised(after, signal.constraints)
    return after


def _noted(state: RunState, signal: Signal, message: str) -> RunState:
    asked: Text = ""
    match state.waiting:
        case NeedsPerson(ask=Question(ask=ask)):
            asked = "\n- ".join((ask.question, *ask.choices))
        case NeedsPerson(ask=Approval(reason=reason)) | Ended(stop=Stop(reason=reason)):
            asked = reason
    answers = "" if signal.kind == "message" else str(asked)
    noted = state  # a trusted reason of a rejection is in the note of the ruling
    if signal.untrusted or signal.kind != "reject":
        noted = notes.with_message(state, message, answers=answers, untrusted=signal.untrusted)
    if signal.untrusted:
        return replace(noted, tainted_by=state.tainted_by or say("the_message", signal=signal.signal_id))
    return replace(noted, messages=(*noted.messages, message)[-notes.MOST_MESSAGES :])


# Rulings


def _step_of(state: RunState, approval: Approval) -> int:
    return approval.step or (state.step + 1 if isinstance(approval.proposal, Plan) else 0)


def _ruled(state: RunState, ask: Approval, verdict: RulingVerdict, *, by: str = "", reason: Text = "") -> RunState:
    about = ask.ref | {"step": _step_of(state, ask), "words": state.words}
    subject = planning.subject_hash(ask.proposal) if ask.task else ask.subject_hash
    ruling = Ruled(subject_hash=subject, verdict=verdict, by=by, reason=reason, **about)
    kept = with_facts(state, ruling, rulings=(*state.rulings, ruling)[-MOST_RULINGS:])
    ruled = notes.with_ruling(kept, ask.proposal, ruling)
    return _approved(ruled, ask, by=by) if verdict == "approved" else _refused(ruled, ask, ruling)


def _approved(state: RunState, ask: Approval, *, by: str) -> RunState:
    match ask.proposal:
        case Framing() as framing:  # with the plan that came along, unless a person's message is newer
            return adopt(state, framing, state.first_choice if state.words == state.shown else None)
        case Plan() as plan if not ask.step:
            return planning.carry_out(state, plan)
    return continuing.on_ruling(state, ask, by=by)


def _refused(state: RunState, ask: Approval, ruling: Ruled) -> RunState:
    plan = ask.proposal if isinstance(ask.proposal, Plan) else None
    what: Text = f"{plan.action.tool} {plan.action.command}" if plan else say("new_framing")
    why = say("not_approved", what=what, verdict=ruling.verdict, why=ruling.reason)
    refused, newest = replace(state, summary=why), state.rulings[-MOST_REFUSED:]
    if len(newest) == MOST_REFUSED and "approved" not in [one.verdict for one in newest]:
        return asking.escalate(refused, "not_approved", say("refused_in_a_row", times=MOST_REFUSED, why=why))
    if ask.step:
        return continuing.on_ruling(refused, ask, refused=("not_approved", why))
    return asking.restart(refused, feedback=(why,))


# Reopening


def _reopen(state: RunState, ended: Ended, event: SignalReceived) -> RunState | Text:
    signal, undecided, held = event.signal, _undecided(state, ended), ended.held
    if flaw := _flaw_of_reopening(state, event) or _flaw_of_answer(state, signal):
        return flaw
    if signal.outcome and len(undecided) != 1:
        return say("outcome_unclear", count=len(undecided))
    running = replace(
        limits.with_more_attempts(_going_on(state, held, ended.at, event)),
        claim=None,
        proposed=None,
        refused_done=0,
        waited_at_step=state.step,
        reopened=state.reopened + 1,
        summary=say("reopened"),
    )
    if spent := _not_raised(state, running, ended):
        return say("raise_with_answer", why=spent, limit=limits.RAISED.get(ended.stop.ending_class, "deadline_at"))
    if running.started_at is None:  # it ended while it waited for its turn
        then = replace(running, waiting=Queued())
    elif held is None:
        then = asking.restart(running, feedback=(say("goes_on_with_answer", ending=ended.stop.ending_class),))
    else:
        for one in running.pendings:
            outcome = acting.stated_outcome(signal) if undecided == [one.name] else "look"
            running = _settled(running, one, ended, event, outcome)
        over = isinstance(running.waiting, Deciding)
        then = asking.reflect(running) if over else resume(running)
    now = acting_of(then.waiting)
    gathering = [graph.step for graph in now.graphs if not graph.stopped]
    tasks = tuple([(one.step, one.id, one.place[0]) for one in now.requests if one.step in gathering])
    waits_for = tuple([one.name for one in now.pendings if one in acting_of(held).pendings])
    reopened = RunReopened(ending_class=ended.stop.ending_class, waits_for=waits_for, tasks=tasks)
    return replace(then, happened=(reopened, *then.happened))


def _flaw_of_reopening(state: RunState, event: SignalReceived) -> Text:
    until = state.reopens_until
    if until is None:
        return say("has_ended", status=state.status)
    if event.signal.kind != "answer":
        return say("answer_reopens", status=state.status)
    if parent := state.brief.as_step:
        return say("was_a_step", step=parent.step, run=parent.run_id)
    if not event.signal.message and event.signal.outcome is None:
        return say("answer_without_message")
    is_late = (event.said_at or event.at) > until
    return say("reopened_too_late", days=state.brief.limits.reopen_days) if is_late else ""


def _not_raised(before: RunState, running: RunState, ended: Ended) -> Text:
    limit = limits.RAISED.get(ended.stop.ending_class)
    if limit and getattr(running.brief.limits, limit) <= getattr(before.brief.limits, limit):
        return ended.stop.reason
    takes_a_step = limit == "max_steps" or isinstance(ended.held, Planned)
    reached = limits.reached_before_a_call(running) or (takes_a_step and limits.reached_before_a_step(running))
    return reached[1] if reached else ""


def _undecided(state: RunState, ended: Ended) -> list[RequestName]:
    """The requests that a stated outcome can mean: the one in doubt, else all writes with an unknown outcome."""
    held = acting_of(ended.held).pendings
    unknown = [one.name for one in held if one.answer is None and not acting.is_repeatable(state, one)]
    return [ended.doubted] if ended.doubted else unknown


def _settled(state: RunState, pending: Pending, ended: Ended, event: SignalReceived, outcome: Outcome) -> RunState:
    """Ends a request that was out at the end by its answer or a person's word; it stays while its answer may come."""
    result, repeatable = pending.answer, acting.is_repeatable(state, pending)
    if result:
        answered = acting.attempt_answered(pending, "ok" if result.status == "ok" else "error", result.error)
        state = with_facts(state, answered, tainted_by=acting.source_of_taint(state, pending, result))
    elif pending.name != ended.doubted and (repeatable or (event.at < pending.deadline_at and outcome == "look")):
        return state
    else:
        result = _by_word(state, pending, event.signal.message or "", outcome)
        if outcome == "look" and not repeatable:
            state = replace(state, doubts=tuple(dict.fromkeys((*state.doubts, acting.new_doubt(pending)))))
    return continuing.finish_request(state, replace(pending, answer=None), result)


def _by_word(state: RunState, pending: Pending, message: str, outcome: Outcome) -> ToolResult:
    if outcome == "ran":
        said = message or str(say("was_carried_out"))
        output = ToolOutput.model_validate({"summary": said, "said_by": "a person"})
        return acting.substitute_result(state, pending, status="ok", result=output)
    error_class, name = ("did_not_run", "not_carried_out") if outcome != "look" else ("in_doubt", "carried_out_unknown")
    return acting.failure(state, pending, error_class, say(name, message=message))
