"""Next steps of a run: ask the model, ask a person, pause, or end.

One model call is open at a time, within the run's budgets; it is repeated while no model is available. Its maximum
cost is set aside first, so that a crash cannot hide it; waiting costs nothing. Notes are compacted before a prompt
exceeds its bound. An unusable decision is asked for again, with the reason. A run ends with exactly one final status.
"""

from datetime import timedelta

from agent_service.core import acting, limits, notes
from agent_service.core.events import ModelUnavailable
from agent_service.core.facts import CallAsked, CallLost, CallPostponed, CallReserved, PersonAsked, RunEnded
from agent_service.core.phases import Phase, Plan, Reflection, Unusable
from agent_service.core.state import RunState, with_decision_status, with_facts
from agent_service.core.waiting import (
    Acting,
    Approval,
    Ask,
    CallReserve,
    Ended,
    Held,
    NeedsPerson,
    OpenCall,
    Planned,
    RequestName,
    Status,
    Stop,
    Thinking,
    next_waiting,
)
from agent_service.sentences import Text, say
from schemas.values import replace

LONGEST_WAIT_S = 86400.0
UNHEARD, MOST_SILENCES = frozenset({"model_timeout", "model_bad_answer", "model_broken"}), 3
"""Errors that hardly pass by themselves; such errors of a call in a row, each paid, after which a person is asked."""
MODEL_BACKOFF_S = (2.0, 5.0, 15.0, 30.0, 60.0)


def ask(state: RunState, phase: Phase, *, feedback: tuple[Text, ...] = ()) -> RunState:
    return begin_call(state, OpenCall(call=state.calls + 1, phase=phase, feedback=feedback))


def begin_call(state: RunState, open_call: OpenCall) -> RunState:
    """Opens the call, unless a limit is reached. A stopped run makes it once it goes on, and checks its limits then."""
    if open_call.phase is Phase.VERIFY and not (state.claim or state.proposed):  # a person's message voided it
        open_call = replace(open_call, phase=Phase.REFLECT)
    phase = open_call.phase
    if state.refusals and phase is not Phase.VERIFY:
        open_call = replace(open_call, feedback=tuple(dict.fromkeys((*state.refusals, *open_call.feedback))))
        state = state if phase is Phase.COMPACT else replace(state, refusals=())
    asked = Thinking(asking=open_call)
    if isinstance(state.waiting, NeedsPerson):
        return replace(state, waiting=next_waiting(state.waiting, asked), calls=open_call.call)
    reached = limits.reached_before_a_call(state) or (phase is Phase.PLAN and limits.reached_before_a_step(state))
    if reached:
        return out_of_budget(replace(state, waiting=asked), reached)
    fact = CallAsked(call=open_call.call, phase=phase, told=open_call.remarks)
    return with_facts(state, fact, waiting=asked, calls=open_call.call)


def restart(state: RunState, *, feedback: tuple[Text, ...]) -> RunState:
    return ask(state, restart_phase(state), feedback=feedback)


def restart_phase(state: RunState) -> Phase:
    return Phase.REFLECT if state.framing else Phase.FRAME


def next_phase(state: RunState) -> Phase:
    return Phase.REFLECT if limits.reached_before_a_step(state) else Phase.PLAN


def reflect(state: RunState) -> RunState:
    """Compacts notes that are too long first: without a model call if facts suffice."""
    if not notes.overfull(state):
        return ask_reflection(state)
    short = notes.compacted(state, state.facts) if notes.facts_suffice(state) else state
    return ask(short, Phase.COMPACT) if notes.overfull(short) else ask_reflection(short)


def ask_reflection(state: RunState) -> RunState:
    again = state.plan and acting.stuck_action(state, state.plan)
    return ask(state, Phase.REFLECT, feedback=(say("same_result"),) if again else ())


def ask_again(
    state: RunState, open_call: OpenCall, flaws: tuple[Text, ...], *, reply: Unusable | None = None
) -> RunState:
    """Asks for a decision again, because of its `flaws`. `reply`: the reply that was no decision."""
    state = with_decision_status(state, "unusable" if reply else "refused", "invalid_decision", flaws)
    repairs = open_call.repairs + 1
    if repairs > state.brief.limits.max_repairs:
        if open_call.phase is Phase.COMPACT:
            return ask_reflection(notes.compacted(state, state.facts))
        reason = say("no_usable_decision", phase=open_call.phase, tries=repairs, flaws=flaws)
        if open_call.phase is Phase.VERIFY:
            return unverified(state, reason)
        return escalate(state, "invalid_decision", reason)
    repaired = OpenCall(
        call=state.calls + 1,
        phase=open_call.phase,
        feedback=open_call.feedback,
        flaws=flaws,
        rejected=reply.raw if reply else "",
        longer=open_call.longer or (reply is not None and reply.cut),
        repairs=repairs,
    )
    return begin_call(state, repaired)


def unverified(state: RunState, why: Text) -> RunState:
    """Goes on without the verifier: `done` stands by its proofs, a new framing is not taken up."""
    if state.claim:
        return complete(state, state.claim)
    feedback = (say("framing_unseen", why=why),) if state.proposed else ()
    return ask(replace(state, proposed=None), Phase.REFLECT, feedback=feedback)


# Events of the open call


def on_reserved(state: RunState, open_call: OpenCall, event: CallReserved) -> RunState:
    """Records the call's reserve, unless a budget forbids it. An earlier reserve was left by a dead process."""
    state = with_lost_call(state)
    if reached := limits.reached_before_a_call(state, event.reserve):
        return out_of_budget(state, reached)
    return replace(state, waiting=Thinking(asking=open_call, reserve=event.reserve))


def on_unavailable(state: RunState, open_call: OpenCall, event: ModelUnavailable) -> RunState:
    """Waits, pauses, fails or escalates by the event's remedy. Charges only the cost that the call may have had."""
    remedy, why = event.remedy, event.message
    if remedy == "hold":
        waiting = Thinking(asking=open_call, still_since=event.at)
        return _postponed(with_lost_call(state), waiting, event.retry_after_s or 0.0, why)
    is_silence = event.lost is not None and event.error_class in UNHEARD
    open_call = replace(open_call, silences=open_call.silences + 1 if is_silence else 0)
    state = replace(state, waiting=Thinking(asking=open_call))  # its cost is known, so the reserve goes
    state = with_lost(state, event.call, *event.lost) if event.lost else state
    if open_call.silences >= MOST_SILENCES:
        remedy, why = "pause", say("model_unheard", times=MOST_SILENCES, why=why)
    if open_call.phase is Phase.VERIFY and remedy != "try_again":
        return unverified(state, event.message)
    match remedy:
        case "fail":
            return end(state, Status.FAILED, event.error_class, why)
        case "escalate":
            return escalate(state, event.error_class, why)
        case "pause":
            anew = Thinking(asking=replace(open_call, silences=0))
            return pause(replace(state, waiting=anew), event.error_class, why)
        case "shrink":
            return _shrunk(state, open_call, event)
    backoff_s, wished_s = MODEL_BACKOFF_S[min(open_call.tries, len(MODEL_BACKOFF_S) - 1)], event.retry_after_s
    delay_s = wished_s if wished_s is not None and 0 <= wished_s <= LONGEST_WAIT_S else backoff_s
    again = Thinking(asking=replace(open_call, tries=open_call.tries + 1))
    return _postponed(state, again, delay_s, say("model_unavailable", why=why))


def _postponed(state: RunState, waiting: Thinking, delay_s: float, why: Text) -> RunState:
    open_call, retry_at = waiting.asking, state.updated_at + timedelta(seconds=delay_s)
    fact = CallPostponed(call=open_call.call, phase=open_call.phase, retry_at=retry_at)
    return with_facts(state, fact, waiting=replace(waiting, retry_at=retry_at), summary=why)


def _shrunk(state: RunState, open_call: OpenCall, event: ModelUnavailable) -> RunState:
    smaller = notes.halved(state)
    if smaller is None:
        return end(state, Status.FAILED, event.error_class, event.message)
    if open_call.phase is Phase.COMPACT:
        return ask_reflection(smaller)
    return begin_call(smaller, replace(open_call, call=state.calls + 1))


# Questions to people, and endings


def complete(state: RunState, claim: Reflection) -> RunState:
    return end(replace(state, claim=None), Status.DONE, "completed", claim.outcome or claim.summary)


def escalate(state: RunState, ending_class: str, reason: Text, *, doubted: RequestName | None = None) -> RunState:
    return end(state, Status.ESCALATED, ending_class, reason, doubted=doubted)


def out_of_budget(state: RunState, budget: tuple[str, Text]) -> RunState:
    """Ends the run, or pauses it, by its `on_budget` rule."""
    ending_class, reason = budget
    if state.claim:
        return complete(state, state.claim)
    if state.brief.limits.on_budget == "escalate":
        return escalate(state, ending_class, reason)
    return pause(state, ending_class, say("raise_to_go_on", reason=reason))


def pause(state: RunState, ending_class: str, reason: Text) -> RunState:
    """Waits for a person. On resume the open call is repeated, pending results are awaited, or a plan is asked for."""
    state = with_lost_call(state)
    held = state.waiting
    if not isinstance(held, Thinking | Acting | Planned):
        held = Thinking(asking=OpenCall(call=state.calls + 1, phase=Phase.PLAN))
    calls = held.asking.call if isinstance(held, Thinking) else state.calls
    return ask_person(replace(state, calls=calls), _stop(state, ending_class, reason), reason, held=held)


def _stop(state: RunState, ending_class: str, reason: Text) -> Stop:
    spent = limits.spent_with_grants(state)
    return Stop(ending_class=ending_class, reason=reason, entry=state.version, spent=spent)


def ask_person(state: RunState, ask: Ask, summary: Text, *, held: Held | None = None) -> RunState:
    since, limits = state.updated_at, state.brief.limits
    patience_s = {"approval": limits.approval_s, "question": limits.answer_s}.get(ask.kind)  # a stop has no timer
    until = None if patience_s is None else since + timedelta(seconds=patience_s)
    waiting = NeedsPerson(ask=ask, since=since, entry=state.version, expires_at=until, held=held)
    asked = replace(state, waiting=waiting, summary=summary)
    return with_facts(asked, PersonAsked(ask=ask, expires_at=asked.due_at))


def with_lost_call(state: RunState) -> RunState:
    """Charges the reserve of the open call, whose reply is lost."""
    match state.waiting:
        case Thinking(reserve=CallReserve() as reserve, asking=open_call) as waiting:
            lost = reserve.if_lost or (reserve.tokens, reserve.cost_usd)
            return with_lost(replace(state, waiting=replace(waiting, reserve=None)), open_call.call, *lost)
    return state


def with_lost(state: RunState, call: int, tokens: int, cost_usd: float | None) -> RunState:
    spent = state.spent.plus(lost_calls=1, lost_tokens=tokens, lost_cost_usd=cost_usd)
    return with_facts(state, CallLost(call=call, tokens=tokens, cost_usd=cost_usd), spent=spent)


def end(
    state: RunState, status: Status, ending_class: str, reason: Text, *, doubted: RequestName | None = None
) -> RunState:
    state = with_lost_call(state)
    held, stop = _kept(state), _stop(state, ending_class, reason)
    if status is Status.ESCALATED:  # a reopened run has the time that was left when it began to wait for a person
        since = state.waiting.since if isinstance(state.waiting, NeedsPerson) else None
        state = limits.extend_deadline(state, since)
    elif isinstance(held, Planned):
        held = None
    waiting = Ended(status=status, stop=stop, at=state.updated_at, held=held, doubted=doubted)
    fact = RunEnded(status=status, ending_class=ending_class, reason=reason, steps=state.step, spent=state.spent)
    return with_facts(state, fact, waiting=waiting, summary=reason)


def _kept(state: RunState) -> Acting | Planned | None:
    match state.waiting:
        case (Acting() | Planned() as held) | NeedsPerson(held=Acting() | Planned() as held):
            return held
        case NeedsPerson(ask=Approval(proposal=Plan() as plan)):
            return Planned(plan=plan)
    return None
