"""Asks the model: one call at a time, within the run's budgets, again later when it is not available.

A call's most possible cost is set aside first, so a crash cannot hide it. Waiting charges nothing. Notes are compacted
before a prompt grows beyond its bound. An unusable decision is asked for again, with the reason.
"""

from datetime import timedelta

from agent_service.core import acting, endings, limits, notes
from agent_service.core.events import CallReserved, ModelUnavailable
from agent_service.core.facts import CallAsked, CallLost, CallPutOff
from agent_service.core.phases import Phase, Unusable
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import Asking, Deciding, Status, Thinking, then
from agent_service.sentences import Text, say
from schemas.values import replace

LONGEST_WAIT_S = 86400.0
MOST_SILENCES = 3
"""Of one call, in a row; then its run waits for a person."""
MODEL_BACKOFF_S = (2.0, 5.0, 15.0, 30.0, 60.0)


def ask(state: RunState, phase: Phase, *, feedback: tuple[Text, ...] = ()) -> RunState:
    """A paused run keeps the question for later."""
    return put(state, replace(next_question(state, phase), feedback=feedback))


def put(state: RunState, asking: Asking) -> RunState:
    if asking.phase is Phase.VERIFY and not (state.claim or state.proposed):  # a person said something since
        asking = replace(asking, phase=Phase.REFLECT)
    state, asking = _with_refusals(state, asking)
    reached = limits.reached_before_a_call(state)
    if asking.phase is Phase.PLAN:
        reached = reached or limits.reached_before_a_step(state)
    if reached and state.status is not Status.PAUSED:
        return endings.out_of_budget(state, reached, question=asking)
    waiting = then(state.waiting, Thinking(asking=asking))
    asked = replace(state, waiting=waiting, calls=asking.call)
    if asked.status is Status.PAUSED:
        return asked
    told = CallAsked(call=asking.call, phase=asking.phase, told=asking.told)
    return with_facts(asked, told)


def _with_refusals(state: RunState, asking: Asking) -> tuple[RunState, Asking]:
    if not state.refusals or asking.phase is Phase.VERIFY:
        return state, asking
    told = replace(asking, feedback=tuple(dict.fromkeys((*state.refusals, *asking.feedback))))
    return (state if asking.phase is Phase.COMPACT else replace(state, refusals=())), told


def reflect(state: RunState) -> RunState:
    if not notes.overfull(state):
        return ask_to_reflect(state)
    by_facts = notes.facts_suffice(state) or limits.nearly_spent(state)
    short = notes.compacted(state, state.facts) if by_facts else state
    return ask(short, Phase.COMPACT) if notes.overfull(short) else ask_to_reflect(short)


def think_anew(state: RunState, *, feedback: tuple[Text, ...] = ()) -> RunState:
    return ask(state, phase_anew(state), feedback=feedback)


def phase_anew(state: RunState) -> Phase:
    return Phase.REFLECT if state.framing else Phase.FRAME


def phase_of_next(state: RunState) -> Phase:
    return Phase.REFLECT if limits.reached_before_a_step(state) else Phase.PLAN


def ask_to_reflect(state: RunState) -> RunState:
    feedback: tuple[Text, ...] = ()
    if acting.repetitions(state) >= acting.SAME_RESULT_LIMIT:
        feedback = (say("same_result"),)
    return ask(state, Phase.REFLECT, feedback=feedback)


def on_reserved(state: RunState, event: CallReserved) -> RunState:
    """Records what the call may spend, unless a budget forbids it. A reserve that stands was left by a dead process."""
    state = endings.with_lost_call(state)
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    reached = limits.reached_before_a_call(state) or limits.beyond_with(state, event.reserve)
    if reached:
        return endings.out_of_budget(state, reached, question=asking)
    return replace(state, waiting=Thinking(asking=asking, reserve=event.reserve))


def on_unavailable(state: RunState, event: ModelUnavailable) -> RunState:
    """Wait durably, pause, fail or escalate, as the remedy says. Charges only what the call may have cost."""
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    asking = replace(asking, silences=asking.silences + 1 if _fell_silent(event) else 0)
    state = _asking(state, asking)  # what was set aside for it is known now
    if event.lost:
        tokens, cost = event.lost
        lost = CallLost(call=event.call, tokens=tokens, cost_usd=cost)
        state = with_facts(replace(state, spent=limits.with_cost_of_lost(state.spent, tokens, cost)), lost)
    event = _without_end(event) if asking.silences >= MOST_SILENCES else event
    if asking.phase is Phase.VERIFY and event.remedy != "try_again":
        return unverified(state, event.message)
    match event.remedy:
        case "fail":
            return endings.fail(state, event.error_class, event.message)
        case "escalate":
            return endings.escalate(state, event.error_class, event.message)
        case "pause":
            return _paused(state, asking, event)
        case "shrink":
            return _shrunk(state, asking, event)
        case _:
            again = Thinking(asking=replace(asking, tries=asking.tries + 1))
            why = say("model_unavailable", why=event.message)
            return _put_off(state, again, _delay_s(asking, event.retry_after_s), why)


def _put_off(state: RunState, waiting: Thinking, delay_s: float, why: Text) -> RunState:
    asking, retry_at = waiting.asking, state.updated_at + timedelta(seconds=delay_s)
    waited = replace(state, waiting=replace(waiting, retry_at=retry_at), summary=why)
    return with_facts(waited, CallPutOff(call=asking.call, phase=asking.phase, retry_at=retry_at))


def _fell_silent(event: ModelUnavailable) -> bool:
    return event.error_class == "model_timeout" and event.lost is not None


def _without_end(event: ModelUnavailable) -> ModelUnavailable:
    return replace(event, remedy="pause", message=say("model_silent", times=MOST_SILENCES, why=event.message))


def _paused(state: RunState, asking: Asking, event: ModelUnavailable) -> RunState:
    anew = replace(asking, silences=0)
    return endings.pause(_asking(state, anew), event.error_class, event.message, question=anew)


def _asking(state: RunState, asking: Asking) -> RunState:
    waiting = state.waiting
    assert isinstance(waiting, Thinking), "the call is waited for"
    return replace(state, waiting=replace(waiting, asking=asking, reserve=None))


def on_held(state: RunState, event: ModelUnavailable) -> RunState:
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    waiting = Thinking(asking=asking, still_since=event.at)
    return _put_off(endings.with_lost_call(state), waiting, event.retry_after_s or 0.0, event.message)


def unverified(state: RunState, why: Text) -> RunState:
    """`done` stands by its proofs, and a new framing is not taken up."""
    if state.claim:
        return endings.complete_as_claimed(state, state.claim)
    feedback = (say("framing_unseen", why=why),) if state.proposed else ()
    return ask(replace(state, waiting=Deciding(), proposed=None), Phase.REFLECT, feedback=feedback)


def _shrunk(state: RunState, asking: Asking, event: ModelUnavailable) -> RunState:
    smaller = notes.shrunk(state)
    if smaller is None:
        return endings.fail(state, event.error_class, event.message)
    if asking.phase is Phase.COMPACT:
        return ask_to_reflect(replace(smaller, waiting=Deciding()))
    return put(smaller, replace(asking, call=state.calls + 1))


def next_question(state: RunState, phase: Phase) -> Asking:
    return Asking(call=state.calls + 1, phase=phase)


def _delay_s(asking: Asking, wished_s: float | None) -> float:
    if wished_s is not None and 0 <= wished_s <= LONGEST_WAIT_S:
        return wished_s
    return MODEL_BACKOFF_S[min(asking.tries, len(MODEL_BACKOFF_S) - 1)]


MAX_REJECTED = 4000


def ask_again(state: RunState, asking: Asking, flaws: tuple[Text, ...], *, reply: Unusable | None = None) -> RunState:
    repairs = asking.repairs + 1
    if repairs > state.brief.limits.max_repairs:
        if asking.phase is Phase.COMPACT:
            return ask_to_reflect(notes.compacted(state, state.facts))
        reason = say("no_usable_decision", phase=asking.phase, tries=repairs, flaws=flaws)
        if asking.phase is Phase.VERIFY:
            return unverified(state, reason)
        return endings.escalate(state, "invalid_decision", reason)
    repaired = Asking(
        call=state.calls + 1,
        phase=asking.phase,
        feedback=asking.feedback,
        flaws=flaws,
        rejected=reply.raw[:MAX_REJECTED] if reply else "",
        longer=asking.longer or (reply is not None and reply.cut),
        repairs=repairs,
    )
    return put(state, repaired)
