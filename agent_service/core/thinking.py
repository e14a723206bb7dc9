"""Takes up a reply of the model: charges it, checks that it answers the call, and carries out its decision.

`done` is refused while an item is open or a claim lacks proof; the next prompt says why.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent_service.core import framing, limits, notes, planning
from agent_service.core.asking import ask, ask_again, ask_reflection, begin_call, escalate, out_of_budget, unverified
from agent_service.core.events import ModelReplied
from agent_service.core.facts import ClaimsJudged, Decided, DecisionStatus
from agent_service.core.framing import judge_claims
from agent_service.core.phases import (
    AskPerson,
    Decision,
    Digest,
    Framing,
    ModelRefusal,
    Phase,
    Plan,
    Reflection,
    Unusable,
    Verdict,
    Verification,
    Wait,
)
from agent_service.core.state import RunState, with_decision_status, with_facts
from agent_service.core.waiting import BUDGET_PREFIX, Deciding, OpenCall
from agent_service.sentences import Text, say
from schemas.values import replace

NEWER = (say("said_newer"),)


def on_reply(state: RunState, open_call: OpenCall, reply: ModelReplied) -> RunState:
    made, replies = reply.provenance, state.replies
    if made and made.reply_id:
        replies = {**replies, made.schema_hash: made.reply_id}
    state = replace(
        state,
        waiting=Deciding(),
        spent=limits.plus_reply(state.spent, reply.usage),
        replies=replies,
        shown=reply.words,
        **limits.measures(state, reply),
    )
    if reply.words >= state.words:
        return _take(state, open_call, reply)
    taken = None if _goes_past(state, reply) else _take(state, open_call, reply)
    if taken and not (taken.final and not taken.ending_class.startswith(BUDGET_PREFIX)):
        return taken
    phase = Phase.REFLECT if open_call.phase in (Phase.PLAN, Phase.VERIFY) else open_call.phase
    anew = replace(open_call, call=state.calls + 1, phase=phase, feedback=(*open_call.feedback, say("reply_outrun")))
    outrun = _decided(state, open_call, reply, status="outrun", why=NEWER)
    return begin_call(with_facts(state, *outrun, claim=None, proposed=None, summary=say("reply_discarded")), anew)


def _take(state: RunState, open_call: OpenCall, reply: ModelReplied) -> RunState:
    state, decision = with_facts(state, *_decided(state, open_call, reply)), reply.decision
    phases, take = TAKERS[type(decision)]
    if open_call.phase not in phases:
        return ask_again(state, open_call, (say("wrong_phase", phase=open_call.phase),))
    return take(state, open_call, reply, decision)


def _decided(
    state: RunState,
    open_call: OpenCall,
    reply: ModelReplied,
    status: DecisionStatus | None = None,
    why: tuple[Text, ...] = (),
) -> tuple[Decided, ...]:
    """A decision is `ok`, and a plan that came along is `ignored`, until something else is known."""
    phase, step = open_call.phase, state.step + (open_call.phase is Phase.PLAN)
    first = Decided(phase=phase, step=step, attempt=open_call.repairs + 1, status=status or "ok", why=why)
    if reply.plan is None:
        return (first,)
    step, status = state.step + 1, status or "ignored"
    return first, Decided(phase=Phase.PLAN, step=step, attempt=1, along=True, status=status, why=why)


def _goes_past(state: RunState, reply: ModelReplied) -> bool:
    """True if a decision would act without the messages that people sent meanwhile. Reads and the first framing may go
    on: the next prompt has the messages.
    """
    for chosen in (reply.decision, reply.plan):
        match chosen:
            case Plan():
                past = planning.plan_writes(state, chosen)
            case Reflection(verdict=verdict):
                past = verdict is not Verdict.CONTINUE
            case Framing():
                past = state.framing is not None
            case _:
                past = chosen is not None and not isinstance(chosen, Digest)
        if past:
            return True
    return False


# Decisions by kind


def _refusal(state: RunState, open_call: OpenCall, _: ModelReplied, refusal: ModelRefusal) -> RunState:
    reason = say("model_refused", category=refusal.category, why=refusal.explanation)
    state = with_decision_status(state, "refused", "model_refused", (reason,))
    return unverified(state, reason) if open_call.phase is Phase.VERIFY else escalate(state, "model_refused", reason)


def _digest(state: RunState, open_call: OpenCall, _: ModelReplied, digest: Digest) -> RunState:
    unheard = tuple(dict.fromkeys((*state.refusals, *open_call.feedback)))
    return ask_reflection(replace(notes.compacted(state, digest.memory), refusals=unheard))


def _reflection(state: RunState, open_call: OpenCall, reply: ModelReplied, reflection: Reflection) -> RunState:
    verdict = reflection.verdict
    if open_call.phase in (Phase.PLAN, Phase.FRAME) and verdict is not Verdict.ESCALATE:
        return ask_again(state, open_call, (say("wrong_phase", phase=open_call.phase),))
    items, accepted, refusals = judge_claims(state, reflection, reply.seen)
    claims = (ClaimsJudged(accepted=accepted, refusals=refusals),) if reflection.met or refusals else ()
    state = with_facts(
        state,
        *claims,
        done_items=items,
        refusals=refusals,
        facts=notes.merge_facts(state.facts, reflection.facts),
        reflection=replace(reflection, met=accepted),
        outline=state.outline if reflection.outline is None else reflection.outline,
        summary=reflection.summary,
    )
    match verdict:
        case Verdict.DONE:
            return _done(state, reflection)
        case Verdict.REFRAME:
            return _reframed(state, reflection)
        case Verdict.ESCALATE:
            return escalate(state, "model", reflection.summary)
    if reply.plan is None:
        return ask(state, Phase.PLAN)
    repairs = open_call.repairs if isinstance(reply.plan, AskPerson | Wait) else 0
    return planning.take_along(state, reply.plan, repairs=repairs)


def _done(state: RunState, reflection: Reflection) -> RunState:
    still_open = [say("item_open", item=i.id, text=i.text) for i in state.done_items if not i.done]
    flaws = (*state.refusals, *still_open)
    if not flaws:
        return framing.verify_done(state, reflection)
    feedback, times = (say("done_not_accepted"), *flaws), state.refused_done + 1
    refused = replace(with_decision_status(state, "refused", "done_refused", feedback), refused_done=times)
    if times > state.brief.limits.max_refused_done:
        return escalate(refused, "done_refused", say("done_claimed", times=times, flaws=flaws))
    return ask(replace(refused, refusals=(), summary=say("done_refused")), Phase.REFLECT, feedback=feedback)


def _reframed(state: RunState, reflection: Reflection) -> RunState:
    reframed, allowed = replace(state, reframes=state.reframes + 1), state.brief.limits.max_reframes
    if reframed.reframes > allowed:
        return out_of_budget(reframed, ("budget_reframes", say("reframes_used", most=allowed)))
    return ask(reframed, Phase.FRAME, feedback=(say("reframe", why=reflection.summary),))


Taker = Callable[[RunState, OpenCall, ModelReplied, Any], RunState]
_ANY, _PLANNING = frozenset(Phase), frozenset({Phase.PLAN})
_NEXT: Taker = lambda state, open_call, _, chosen: planning.take_next(state, chosen, open_call)  # noqa: E731 # of a table
TAKERS: Mapping[type[Decision], tuple[frozenset[Phase], Taker]] = {
    ModelRefusal: (_ANY, _refusal),
    Unusable: (_ANY, _NEXT),
    Framing: (frozenset({Phase.FRAME}), framing.take_framing),
    Plan: (_PLANNING, _NEXT),
    Wait: (_PLANNING, _NEXT),
    AskPerson: (frozenset({Phase.PLAN, Phase.FRAME}), _NEXT),
    Reflection: (_ANY - {Phase.VERIFY}, _reflection),
    Digest: (frozenset({Phase.REFLECT, Phase.COMPACT}), _digest),
    Verification: (frozenset({Phase.VERIFY}), lambda state, _, __, found: framing.take_verification(state, found)),
}
"""The phases in which each kind of decision is valid, and its handler. A reflection may answer a call to compact."""
