"""Takes up a reply of the model: its cost, whether it fits the question, what it decides, and what became of that.

`done` is refused while an item is open or a claim unproved; a refusal is told with the next question.
"""

from agent_service.core import endings, framing, notes
from agent_service.core.asking import ask, ask_again, ask_to_reflect, next_question, put, unverified
from agent_service.core.brief import Spent
from agent_service.core.events import ModelReplied, Seen
from agent_service.core.facts import ClaimsJudged, Decided, DecisionStatus
from agent_service.core.framing import take_framing, take_verification
from agent_service.core.limits import measured
from agent_service.core.phases import (
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
    Verdict,
    Verification,
    Wait,
)
from agent_service.core.planning import take_next, take_plan, take_question, writes
from agent_service.core.proof import judged
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import OF_BUDGETS, Asking, Deciding
from agent_service.sentences import Text, say
from schemas.values import replace


def on_reply(state: RunState, reply: ModelReplied) -> RunState:
    """`state` is counted one entry further already; the call is the one asked for."""
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    spent, replies = _add(state.spent, reply), _replies(state, reply)
    state = replace(state, waiting=Deciding(), spent=spent, replies=replies, shown=reply.words)
    state = measured(state, reply)
    then = None if outrun(state, reply) else _taken_up(state, asking, reply)
    if then is None or (is_older(state, reply) and _hands_over(then)):
        return _ask_anew(with_facts(state, *decided_outrun(state, asking, reply)), asking)
    return replace(then, happened=(*decided_by(state, asking, reply, then), *then.happened))


def _taken_up(state: RunState, asking: Asking, reply: ModelReplied) -> RunState:
    match reply.decision:
        case Refusal(category=category, explanation=explanation):
            reason = say("model_refused", category=category, why=explanation)
            if asking.phase is Phase.VERIFY:
                return unverified(state, reason)
            return endings.escalate(state, "model_refused", reason)
        case Unusable(reason=reason, flaws=flaws) as unusable:
            return ask_again(state, asking, flaws or (reason,), reply=unusable)
    return _decided(state, asking, reply) or ask_again(state, asking, _flaws(state, asking, reply))


def is_older(state: RunState, reply: ModelReplied) -> bool:
    return reply.words < state.words


def outrun(state: RunState, reply: ModelReplied) -> bool:
    """Whether people have said something since. Reads and the first framing may go on: the next prompt tells of it."""
    return is_older(state, reply) and any(
        _goes_past(state, chosen) for chosen in (reply.decision, reply.plan) if chosen
    )


def _hands_over(then: RunState) -> bool:
    return then.final and not then.ending_class.startswith(OF_BUDGETS)


def _goes_past(state: RunState, chosen: Decision) -> bool:
    match chosen:
        case Plan():
            return writes(state, chosen)
        case Reflection(verdict=verdict):
            return verdict is not Verdict.CONTINUE
        case Framing():
            return state.framing is not None
    return not isinstance(chosen, Digest)


def _ask_anew(state: RunState, asking: Asking) -> RunState:
    told = say("reply_outrun")
    why = say("reply_discarded")
    phase = Phase.REFLECT if asking.phase in (Phase.PLAN, Phase.VERIFY) else asking.phase
    again = replace(asking, call=state.calls + 1, phase=phase, feedback=(*asking.feedback, told))
    unclaimed = replace(state, claim=None, proposed=None, summary=why)
    return put(unclaimed, again)


def _decided(state: RunState, asking: Asking, reply: ModelReplied) -> RunState | None:
    match asking.phase, reply.decision:
        case Phase.FRAME, Framing() as framed if not _flaws_of_framing(state, framed):
            return take_framing(state, framed, reply.plan)
        case Phase.PLAN, Plan() as plan:
            return take_plan(state, plan, asking)
        case Phase.PLAN, Wait() as wait:
            return take_next(state, wait, asking.feedback, repairs=asking.repairs)
        case Phase.PLAN | Phase.FRAME, Ask() as question:
            return take_question(state, question, asking)
        case Phase.PLAN | Phase.FRAME, Reflection(verdict=Verdict.ESCALATE) as reflection:
            return take_reflection(state, reflection, None, reply.seen)
        case Phase.REFLECT | Phase.COMPACT, Reflection() as reflection:  # to compact is a means, and may be left out
            repairs = asking.repairs if isinstance(reply.plan, Ask | Wait) else 0
            return take_reflection(state, reflection, reply.plan, reply.seen, repairs=repairs)
    return _beside_the_loop(state, asking, reply)


def _beside_the_loop(state: RunState, asking: Asking, reply: ModelReplied) -> RunState | None:
    match asking.phase, reply.decision:
        case Phase.VERIFY, Verification() as found:
            return take_verification(state, found)
        case Phase.REFLECT | Phase.COMPACT, Digest(memory=memory):
            unheard = tuple(dict.fromkeys((*state.refusals, *asking.feedback)))
            compacted = replace(notes.compacted(state, memory), refusals=unheard)
            return ask_to_reflect(compacted)
    return None


def _flaws(state: RunState, asking: Asking, reply: ModelReplied) -> tuple[Text, ...]:
    flaws = _flaws_of_framing(state, reply.decision) if isinstance(reply.decision, Framing) else ()
    return flaws or (say("wrong_phase", phase=asking.phase),)


def _flaws_of_framing(state: RunState, framed: Framing) -> tuple[Text, ...]:
    return framing.flaws_of_framing(state.brief, framed) or framing.flaws_of_reframing(state, framed)


def _add(spent: Spent, reply: ModelReplied) -> Spent:
    usage = reply.usage
    known = spent.cost_usd is not None and usage.cost_usd is not None
    return replace(
        spent,
        calls=spent.calls + 1,
        input_tokens=spent.input_tokens + usage.input_tokens,
        output_tokens=spent.output_tokens + usage.output_tokens,
        cost_usd=spent.cost_usd + usage.cost_usd if known else None,  # type: ignore[operator] # both known
        cache_read_tokens=spent.cache_read_tokens + usage.cache_read_tokens,
    )


def _replies(state: RunState, reply: ModelReplied) -> dict[str, str]:
    made = reply.provenance
    return {**state.replies, made.schema_hash: made.reply_id} if made and made.reply_id else state.replies


def take_reflection(
    state: RunState, reflection: Reflection, plan: Next | Unusable | None, seen: tuple[Seen, ...], *, repairs: int = 0
) -> RunState:
    proved = judged(state, reflection, seen)
    reflected = replace(
        state,
        done_items=proved.items,
        refusals=proved.refusals,
        facts=notes.with_new(state.facts, reflection.facts),
        reflection=replace(reflection, met=proved.accepted),
        outline=state.outline if reflection.outline is None else reflection.outline,
        summary=reflection.summary,
    )
    if reflection.met or proved.refusals:
        reflected = with_facts(reflected, ClaimsJudged(accepted=proved.accepted, refusals=proved.refusals))
    match reflection.verdict:
        case Verdict.DONE:
            return _done(reflected, reflection)
        case Verdict.REFRAME:
            return _reframed(reflected, reflection)
        case Verdict.ESCALATE:
            return endings.escalate(reflected, "model", reflection.summary)
        case Verdict.CONTINUE:
            return _continued(reflected, plan, repairs=repairs)


def _done(state: RunState, reflection: Reflection) -> RunState:
    still_open = tuple(say("item_open", item=i.id, text=i.text) for i in state.done_items if not i.done)
    flaws = (*state.refusals, *still_open)
    if not flaws:
        return framing.look_at_done(state, reflection)
    refused = replace(state, refused_done=state.refused_done + 1, summary=say("done_refused"))
    if refused.refused_done > state.brief.limits.max_refused_done:
        reason = say("done_claimed", times=refused.refused_done, flaws=flaws)
        return endings.escalate(refused, "done_refused", reason)
    return ask(replace(refused, refusals=()), Phase.REFLECT, feedback=(say("done_not_accepted"), *flaws))


def _reframed(state: RunState, reflection: Reflection) -> RunState:
    reframed = replace(state, reframes=state.reframes + 1)
    allowed = state.brief.limits.max_reframes
    if reframed.reframes > allowed:
        spent = ("budget_reframes", say("reframes_used", most=allowed))
        return endings.out_of_budget(state, spent, question=next_question(state, Phase.PLAN))
    why = say("reframe", why=reflection.summary)
    return ask(reframed, Phase.FRAME, feedback=(why,))


def _continued(state: RunState, plan: Next | Unusable | None, *, repairs: int) -> RunState:
    if plan is not None:
        return take_next(state, plan, (), repairs=repairs)
    return ask(state, Phase.PLAN)


NEWER = (say("said_newer"),)


def decided_outrun(before: RunState, asking: Asking, reply: ModelReplied) -> tuple[Decided, ...]:
    first = Decided(
        phase=asking.phase, step=_step(before, asking.phase), attempt=asking.repairs + 1, status="outrun", why=NEWER
    )
    return first, *_along(before, reply, "outrun", NEWER)


def decided_by(before: RunState, asking: Asking, reply: ModelReplied, after: RunState) -> tuple[Decided, ...]:
    """`after` is the run once the reply was taken up."""
    first = _one(before, after, reply.decision, asking.phase, attempt=asking.repairs + 1)
    if reply.plan is None:
        return (first,)
    if not _goes_on(after, reply.decision, asking.phase):
        return first, *_along(before, reply, "ignored")
    along = _one(before, after, reply.plan, Phase.PLAN, attempt=1, along=True)
    return first, along


def _along(
    before: RunState, reply: ModelReplied, status: DecisionStatus, why: tuple[Text, ...] = ()
) -> tuple[Decided, ...]:
    if reply.plan is None:
        return ()
    step = _step(before, Phase.PLAN)
    return (Decided(phase=Phase.PLAN, step=step, attempt=1, status=status, along=True, why=why),)


def _step(before: RunState, phase: Phase) -> int:
    return before.step + (phase is Phase.PLAN)


def _one(
    before: RunState, after: RunState, decision: Decision, phase: Phase, *, attempt: int, along: bool = False
) -> Decided:
    error_class, why = _objection(before, after, decision, phase) or ("", ())
    refused: DecisionStatus = "refused" if error_class else "ok"
    return Decided(
        phase=phase,
        step=_step(before, phase),
        attempt=attempt,
        status="unusable" if isinstance(decision, Unusable) else refused,
        along=along,
        error_class=error_class,
        why=why,
    )


def _goes_on(after: RunState, decision: Decision, phase: Phase) -> bool:
    match phase, decision:
        case Phase.FRAME, Framing():
            return after.framing == decision
        case Phase.REFLECT | Phase.COMPACT, Reflection(verdict=Verdict.CONTINUE):
            return True
    return False


def _objection(
    before: RunState, after: RunState, decision: Decision, phase: Phase
) -> tuple[str, tuple[Text, ...]] | None:
    asked = after.calling
    if after.refused_done > before.refused_done:
        return "done_refused", _told(after)
    if asked and asked.repairs and asked.phase is phase:
        return "invalid_decision", asked.flaws or _told(after)
    if after.stop and (isinstance(decision, Plan | Refusal) or _is_stopped_by(after, decision, phase)):
        return after.ending_class, (after.reason,)
    return None


def _is_stopped_by(after: RunState, decision: Decision, phase: Phase) -> bool:
    reframe = isinstance(decision, Reflection) and decision.verdict is Verdict.REFRAME
    if reframe and after.ending_class == "budget_reframes":
        return True
    return after.ending_class == "invalid_decision" and not _goes_on(after, decision, phase)


def _told(after: RunState) -> tuple[Text, ...]:
    return after.asking.told if after.asking else (after.reason,)
