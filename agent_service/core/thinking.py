"""Frame, Plan, Reflect: taking up what the model decided.

Rules: ending is decided by criteria, never by what the model left out. `done` is refused while an item is open or its
evidence does not exist. A decision that cannot be used is told to the model and asked for again, so often and no more.
"""

from datetime import datetime

from agent_service.core import endings, limits, notes
from agent_service.core.acting import dispatch, flaws_of_action, is_stuck
from agent_service.core.asking import ask, ask_to_reflect, next_question, put
from agent_service.core.effects import Transition
from agent_service.core.endings import after_progress
from agent_service.core.events import ModelReplied
from agent_service.core.phases import Digest, Framing, Met, Phase, Plan, Reflection, Refusal, Unusable, Verdict
from agent_service.core.replacing import replace
from agent_service.core.state import DoneItem, RunState, Spent
from agent_service.core.waiting import Asking, Deciding

MAX_FACTS = 100
MAX_REJECTED = 4000


def on_reply(state: RunState, reply: ModelReplied) -> Transition:
    """Take up a decision. `state` is already counted one entry further; the call is the one asked for."""
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    spent, replies = _add(state.spent, reply), _replies(state, reply)
    state = replace(state, waiting=Deciding(), spent=spent, replies=replies, updated_at=reply.at)
    match reply.decision:
        case Refusal(category=category, explanation=explanation):
            reason = f"the model refused to answer ({category}){': ' if explanation else ''}{explanation}"
            return endings.escalate(state, "model_refused", reason, at=reply.at)
        case Unusable(reason=reason) as unusable:
            return _ask_again(state, asking, (reason,), at=reply.at, reply=unusable)
    return _decided(state, asking, reply) or _ask_again(state, asking, _flaws(asking, reply), at=reply.at)


def _decided(state: RunState, asking: Asking, reply: ModelReplied) -> Transition | None:
    """What a decision that fits the question leads to; None when it does not fit."""
    match asking.phase, reply.decision:
        case Phase.FRAME, Framing() as framing if not framing.flaws():
            return _framed(state, framing, reply.plan, at=reply.at)
        case Phase.PLAN, Plan() as plan:
            return _planned(state, plan, asking, at=reply.at)
        case Phase.PLAN, Reflection(verdict=Verdict.ESCALATE, summary=summary):
            return endings.escalate(state, "model", summary, at=reply.at)
        case Phase.REFLECT, Reflection() as reflection:
            return _reflected(state, reflection, reply.plan, at=reply.at)
        case Phase.COMPACT, Digest(memory=memory):
            compacted = notes.compacted(state, memory)
            then = ask_to_reflect(compacted, reply.at)
            return after_progress(compacted, "compact", "older notes are taken together", then)
    return None


def _flaws(asking: Asking, reply: ModelReplied) -> tuple[str, ...]:
    flaws = reply.decision.flaws() if isinstance(reply.decision, Framing) else ()
    return flaws or (f"the reply is no decision of phase {asking.phase}",)


def _framed(state: RunState, framing: Framing, plan: Plan | Unusable | None, *, at: datetime) -> Transition:
    items = tuple(DoneItem(id=f"d{n}", text=text) for n, text in enumerate(framing.definition_of_done, start=1))
    framed = replace(state, framing=framing, done_items=items, summary=f"framed: {framing.goal_statement}")
    then = ask(framed, Phase.PLAN, at=at) if plan is None else _with_plan(framed, plan, (), at=at)
    return after_progress(framed, "frame", framed.summary, then)


def _planned(state: RunState, plan: Plan, asking: Asking, *, at: datetime) -> Transition:
    flaws = flaws_of_action(state.brief, plan.action)
    if flaws:
        return _ask_again(state, asking, flaws, at=at)
    if is_stuck(state, plan.action):
        reason = f"the same call of {plan.action.tool} brought the same result three times, and was planned again"
        return endings.escalate(state, "stuck_loop", reason, at=at)
    reached = limits.reached_before_a_step(state, at)
    planned = replace(state, plan=plan, outline=plan.outline or state.outline)
    if reached:
        then = endings.out_of_budget(planned, reached, at=at, question=next_question(planned, Phase.PLAN))
    else:
        then = dispatch(planned, plan.action, at=at)
    return after_progress(planned, "plan", f"next: {plan.action.tool} {plan.action.command}", then)


def _reflected(state: RunState, reflection: Reflection, plan: Plan | Unusable | None, *, at: datetime) -> Transition:
    items, refusals = _ticked(state, reflection.met)
    reflected = replace(
        state,
        done_items=items,
        facts=_with_new(state.facts, reflection.facts),
        reflection=reflection,
        outline=state.outline if reflection.outline is None else reflection.outline,
        summary=reflection.summary,
    )
    match reflection.verdict:
        case Verdict.DONE:
            return _done(reflected, reflection, refusals, at=at)
        case Verdict.REFRAME:
            return _reframed(reflected, reflection, at=at)
        case Verdict.ESCALATE:
            return _told(reflected, endings.escalate(reflected, "model", reflection.summary, at=at))
        case Verdict.CONTINUE:
            return _continued(reflected, plan, refusals, at=at)


def _with_new(known: tuple[str, ...], learned: tuple[str, ...]) -> tuple[str, ...]:
    cut = (fact[: notes.MAX_FACT] for fact in learned)
    return (*known, *(fact for fact in cut if fact not in known))[-MAX_FACTS:]


def _done(state: RunState, reflection: Reflection, refusals: tuple[str, ...], *, at: datetime) -> Transition:
    still_open = tuple(f"item {i.id} is still open: {i.text}" for i in state.done_items if not i.done)
    if not still_open and not refusals:
        return _told(state, endings.complete(state, reflection.outcome or reflection.summary, at))
    refused = replace(state, refused_done=state.refused_done + 1)
    if refused.refused_done > state.brief.limits.max_refused_done:
        reason = f"`done` was claimed {refused.refused_done} times: {'; '.join((*refusals, *still_open))}"
        return _told(refused, endings.escalate(refused, "done_refused", reason, at=at), "done was refused")
    feedback = ("`done` was refused", *refusals, *still_open)
    return _told(refused, ask(refused, Phase.REFLECT, at=at, feedback=feedback), "done was refused")


def _reframed(state: RunState, reflection: Reflection, *, at: datetime) -> Transition:
    reframed = replace(state, reframes=state.reframes + 1)
    allowed = state.brief.limits.max_reframes
    if reframed.reframes > allowed:
        spent = ("budget_reframes", f"all {allowed} reframes are used")
        return _told(state, endings.out_of_budget(state, spent, at=at, question=next_question(state, Phase.PLAN)))
    why = f"reframe: {reflection.summary}"
    return _told(reframed, ask(reframed, Phase.FRAME, at=at, feedback=(why,)), why)


def _continued(state: RunState, plan: Plan | Unusable | None, refusals: tuple[str, ...], *, at: datetime) -> Transition:
    if plan is not None:
        return _told(state, _with_plan(state, plan, refusals, at=at))
    return _told(state, ask(state, Phase.PLAN, at=at, feedback=refusals))


def _told(state: RunState, then: Transition, what: str = "") -> Transition:
    """Say that the reflection is committed, and what it came to."""
    return after_progress(state, "reflect", what or state.summary, then)


def _with_plan(state: RunState, plan: Plan | Unusable, refusals: tuple[str, ...], *, at: datetime) -> Transition:
    """Take up the plan that came along with a framing or a reflection."""
    asking = Asking(call=state.calls, phase=Phase.PLAN, feedback=refusals)
    if isinstance(plan, Plan):
        return _planned(state, plan, asking, at=at)
    return _ask_again(state, asking, (plan.reason,), at=at, reply=plan)


def _ticked(state: RunState, met: tuple[Met, ...]) -> tuple[tuple[DoneItem, ...], tuple[str, ...]]:
    """The items with what is proved, and why the rest was not accepted."""
    if not met:
        return state.done_items, ()
    evidence = {f"step:{r.step}" for r in state.completed if r.status == "ok"} | set(state.artifacts)
    known = {item.id for item in state.done_items}
    refusals = [f"there is no item {m.item}" for m in met if m.item not in known]
    refusals += [f"evidence {m.evidence!r} for item {m.item} does not exist" for m in met if m.evidence not in evidence]
    proved = [m for m in met if m.evidence in evidence]
    items = tuple(
        replace(
            item,
            evidence=tuple(dict.fromkeys((*item.evidence, *(m.evidence for m in proved if m.item == item.id)))),
        )
        for item in state.done_items
    )
    return items, tuple(refusals)


def _ask_again(
    state: RunState, asking: Asking, flaws: tuple[str, ...], *, at: datetime, reply: Unusable | None = None
) -> Transition:
    repairs = asking.repairs + 1
    if repairs > state.brief.limits.max_repairs:
        if asking.phase is Phase.COMPACT:
            return ask_to_reflect(notes.compacted(state, state.facts), at)
        reason = f"the model gave no usable {asking.phase} in {repairs} tries: {'; '.join(flaws)}"
        return endings.escalate(state, "invalid_decision", reason, at=at)
    repaired = Asking(
        call=state.calls + 1,
        phase=asking.phase,
        feedback=(*asking.feedback, *flaws),
        rejected=reply.raw[:MAX_REJECTED] if reply else "",
        longer=asking.longer or (reply is not None and reply.cut),
        repairs=repairs,
    )
    return put(state, repaired, at=at)


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
