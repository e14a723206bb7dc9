"""Reflect: what the newest result means, and which done-items it proves.

`done` is refused while an item is open or a claim unproved; a refusal is told with the next question.
"""

from datetime import datetime

from agent_service.core import endings
from agent_service.core.events import Seen
from agent_service.core.facts import ClaimsJudged
from agent_service.core.model import notes, verifying
from agent_service.core.model.asking import ask, next_question
from agent_service.core.model.planning import take_next
from agent_service.core.phases import Next, Phase, Reflection, Unusable, Verdict
from agent_service.core.proof import judged
from agent_service.core.state import RunState, replace, with_facts


def take_reflection(
    state: RunState,
    reflection: Reflection,
    plan: Next | Unusable | None,
    seen: tuple[Seen, ...],
    *,
    at: datetime,
    repairs: int = 0,
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
            return _done(reflected, reflection, at=at)
        case Verdict.REFRAME:
            return _reframed(reflected, reflection, at=at)
        case Verdict.ESCALATE:
            return endings.escalate(reflected, "model", reflection.summary, at=at)
        case Verdict.CONTINUE:
            return _continued(reflected, plan, at=at, repairs=repairs)


def _done(state: RunState, reflection: Reflection, *, at: datetime) -> RunState:
    still_open = tuple(f"item {i.id} is still open: {i.text}" for i in state.done_items if not i.done)
    flaws = (*state.refusals, *still_open)
    if not flaws:
        return verifying.look_at_done(state, reflection, at=at)
    refused = replace(state, refused_done=state.refused_done + 1, summary="done was refused")
    if refused.refused_done > state.brief.limits.max_refused_done:
        reason = f"`done` was claimed {refused.refused_done} times: {'; '.join(flaws)}"
        return endings.escalate(refused, "done_refused", reason, at=at)
    return ask(replace(refused, refusals=()), Phase.REFLECT, at=at, feedback=("`done` was refused", *flaws))


def _reframed(state: RunState, reflection: Reflection, *, at: datetime) -> RunState:
    reframed = replace(state, reframes=state.reframes + 1)
    allowed = state.brief.limits.max_reframes
    if reframed.reframes > allowed:
        spent = ("budget_reframes", f"all {allowed} reframes are used")
        return endings.out_of_budget(state, spent, at=at, question=next_question(state, Phase.PLAN))
    why = f"reframe: {reflection.summary}"
    return ask(reframed, Phase.FRAME, at=at, feedback=(why,))


def _continued(state: RunState, plan: Next | Unusable | None, *, at: datetime, repairs: int) -> RunState:
    if plan is not None:
        return take_next(state, plan, (), at=at, repairs=repairs)
    return ask(state, Phase.PLAN, at=at)
