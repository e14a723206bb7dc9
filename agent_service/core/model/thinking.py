"""Takes up a reply of the model: its cost, whether it fits the question, and who decides about it."""

from datetime import datetime

from agent_service.core import endings
from agent_service.core.brief import Spent
from agent_service.core.events import ModelReplied
from agent_service.core.model import decided, framing, notes, reframing
from agent_service.core.model.asking import ask_again, ask_to_reflect, put, unlooked
from agent_service.core.model.measures import measured
from agent_service.core.model.planning import take_next, take_plan, take_question, writes
from agent_service.core.model.reflecting import take_reflection
from agent_service.core.model.reframing import take_framing
from agent_service.core.model.verifying import take_verification
from agent_service.core.phases import (
    Ask,
    Decision,
    Digest,
    Framing,
    Phase,
    Plan,
    Reflection,
    Refusal,
    Unusable,
    Verdict,
    Verification,
    Wait,
)
from agent_service.core.state import RunState, replace, with_facts
from agent_service.core.waiting import OF_BUDGETS, Asking, Deciding


def on_reply(state: RunState, reply: ModelReplied) -> RunState:
    """`state` is counted one entry further already; the call is the one asked for."""
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    spent, replies = _add(state.spent, reply), _replies(state, reply)
    state = replace(state, waiting=Deciding(), spent=spent, replies=replies, shown=reply.heard, updated_at=reply.at)
    state = measured(state, reply)
    then = None if outrun(state, reply) else _taken_up(state, asking, reply)
    if then is None or (is_older(state, reply) and _hands_over(then)):
        return _ask_anew(with_facts(state, *decided.outrun(state, asking, reply)), asking, at=reply.at)
    return replace(then, happened=(*decided.decided(state, asking, reply, then), *then.happened))


def _taken_up(state: RunState, asking: Asking, reply: ModelReplied) -> RunState:
    match reply.decision:
        case Refusal(category=category, explanation=explanation):
            reason = f"the model refused to answer ({category}){': ' if explanation else ''}{explanation}"
            if asking.phase is Phase.VERIFY:
                return unlooked(state, reason, at=reply.at)
            return endings.escalate(state, "model_refused", reason, at=reply.at)
        case Unusable(reason=reason, flaws=flaws) as unusable:
            return ask_again(state, asking, flaws or (reason,), at=reply.at, reply=unusable)
    return _decided(state, asking, reply) or ask_again(state, asking, _flaws(state, asking, reply), at=reply.at)


def is_older(state: RunState, reply: ModelReplied) -> bool:
    return reply.heard < state.heard


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


def _ask_anew(state: RunState, asking: Asking, *, at: datetime) -> RunState:
    told = "a person wrote while you were answering, so that answer was discarded"
    why = "the reply was discarded, because a person wrote meanwhile"
    phase = Phase.REFLECT if asking.phase in (Phase.PLAN, Phase.VERIFY) else asking.phase
    again = replace(asking, call=state.calls + 1, phase=phase, feedback=(*asking.feedback, told))
    unclaimed = replace(state, claim=None, proposed=None, summary=why)
    return put(unclaimed, again, at=at)


def _decided(state: RunState, asking: Asking, reply: ModelReplied) -> RunState | None:
    match asking.phase, reply.decision:
        case Phase.FRAME, Framing() as framed if not _flaws_of_framing(state, framed):
            return take_framing(state, framed, reply.plan, at=reply.at)
        case Phase.PLAN, Plan() as plan:
            return take_plan(state, plan, asking, at=reply.at)
        case Phase.PLAN, Wait() as wait:
            return take_next(state, wait, asking.feedback, at=reply.at, repairs=asking.repairs)
        case Phase.PLAN | Phase.FRAME, Ask() as question:
            return take_question(state, question, asking, at=reply.at)
        case Phase.PLAN | Phase.FRAME, Reflection(verdict=Verdict.ESCALATE) as reflection:
            return take_reflection(state, reflection, None, reply.seen, at=reply.at)
        case Phase.REFLECT | Phase.COMPACT, Reflection() as reflection:  # to compact is a means, and may be left out
            repairs = asking.repairs if isinstance(reply.plan, Ask | Wait) else 0
            return take_reflection(state, reflection, reply.plan, reply.seen, at=reply.at, repairs=repairs)
    return _beside_the_loop(state, asking, reply)


def _beside_the_loop(state: RunState, asking: Asking, reply: ModelReplied) -> RunState | None:
    match asking.phase, reply.decision:
        case Phase.VERIFY, Verification() as found:
            return take_verification(state, found, at=reply.at)
        case Phase.REFLECT | Phase.COMPACT, Digest(memory=memory):
            unheard = tuple(dict.fromkeys((*state.refusals, *asking.feedback)))
            compacted = replace(notes.compacted(state, memory), refusals=unheard)
            return ask_to_reflect(compacted, reply.at)
    return None


def _flaws(state: RunState, asking: Asking, reply: ModelReplied) -> tuple[str, ...]:
    flaws = _flaws_of_framing(state, reply.decision) if isinstance(reply.decision, Framing) else ()
    return flaws or (f"the reply is no decision of phase {asking.phase}",)


def _flaws_of_framing(state: RunState, framed: Framing) -> tuple[str, ...]:
    return framing.flaws_of(state.brief, framed) or reframing.flaws_of(state, framed)


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
