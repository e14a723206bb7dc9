"""Plan: what comes next is checked, and carried out. The rules of each action are in `acting`."""

from datetime import datetime

from agent_service.core import endings, limits
from agent_service.core.graph import grants
from agent_service.core.model import answering, reads, timing
from agent_service.core.model.asking import ask, ask_again, next_question, phase_of_next
from agent_service.core.people import approving
from agent_service.core.phases import Ask, Next, Phase, Plan, Unusable, Wait
from agent_service.core.state import RunState, replace
from agent_service.core.tools import doubting
from agent_service.core.tools.acting import dispatch, flaws_of_action, is_stuck, unknown_artifacts
from agent_service.core.waiting import Asking, Planned


def take_plan(state: RunState, plan: Plan, asking: Asking, *, at: datetime) -> RunState:
    flaws = flaws_of_plan(state, plan)
    if flaws:
        return ask_again(state, asking, flaws, at=at)
    stuck = next((action for action in plan.actions if is_stuck(state, action)), None)
    if stuck:
        reason = f"the same call of {stuck.tool} brought the same result three times, and was planned again"
        return endings.escalate(state, "stuck_loop", reason, at=at)
    planned = replace(state, plan=plan, outline=plan.outline or state.outline)
    return carry_out(planned, plan, at=at)


def flaws_of_plan(state: RunState, plan: Plan) -> tuple[str, ...]:
    """Whatever a person would allow; empty when it may be carried out."""
    flaws = (
        flaw
        for action in plan.actions
        for flaw in (*flaws_of_action(state.brief, action), *unknown_artifacts(state, action))
    )
    settled = (*approving.flaws_of(state, plan.action), *doubting.flaws_of(state, plan.action))
    return *flaws, *settled, *reads.flaws_of(state, plan), *grants.flaws_of(state, plan.actions)


def writes(state: RunState, plan: Plan) -> bool:
    return any(command is None or command.tier == "write" for command in map(state.brief.command, plan.actions))


def carry_out(state: RunState, plan: Plan, *, at: datetime) -> RunState:
    reached = limits.reached_before_a_step(state, at)
    if reached:
        kept = replace(state, waiting=Planned(plan=plan))
        return endings.out_of_budget(kept, reached, at=at, question=next_question(state, Phase.PLAN))
    if flaws := reads.flaws_of(state, plan):  # less is left than when it was planned
        return ask(state, Phase.PLAN, at=at, feedback=flaws)
    why = approving.why_needed(state, plan.action)
    if why and not approving.is_allowed(state, plan):
        return approving.ask_approval(state, plan, why, at=at)
    return dispatch(state, plan, at=at)


def take_next(
    state: RunState, chosen: Next | Unusable, refusals: tuple[str, ...], *, at: datetime, repairs: int = 0
) -> RunState:
    asking = Asking(call=state.calls, phase=Phase.PLAN, feedback=refusals, repairs=repairs)
    match chosen:
        case Plan():
            return take_plan(state, chosen, asking, at=at)
        case Unusable(reason=reason, flaws=flaws):
            return ask_again(state, asking, flaws or (reason,), at=at, reply=chosen)
        case Ask():
            return take_question(state, chosen, asking, at=at)
        case Wait():
            return take_wait(state, chosen, asking, at=at)


def take_question(state: RunState, question: Ask, asking: Asking, *, at: datetime) -> RunState:
    if flaws := answering.flaws_of(state, question):
        return _rest_again(state, asking, flaws, at=at)
    return answering.ask_person(state, question, at=at)


def take_wait(state: RunState, wait: Wait, asking: Asking, *, at: datetime) -> RunState:
    if flaws := timing.flaws_of(state, wait, at):
        return _rest_again(state, asking, flaws, at=at)
    return timing.wait_for(state, wait, at=at)


def _rest_again(state: RunState, asking: Asking, flaws: tuple[str, ...], *, at: datetime) -> RunState:
    phase = phase_of_next(state, at) if asking.phase is Phase.PLAN else asking.phase
    return ask_again(state, replace(asking, phase=phase), flaws, at=at)
