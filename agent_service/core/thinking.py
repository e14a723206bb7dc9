"""Frame, Plan, Reflect: asking the model, and taking up what it decided.

Rules: ending is decided by criteria, never by what the model left out. `done` is refused while an item is open or its
evidence does not exist. A decision that cannot be used is told to the model and asked for again, so often and no more.
"""

from datetime import datetime, timedelta

from agent_service.core import endings, limits
from agent_service.core.acting import dispatch, flaws_of_action, is_stuck
from agent_service.core.effects import AskModel, Transition
from agent_service.core.events import ModelReplied, ModelUnavailable
from agent_service.core.phases import Framing, Met, Phase, Plan, Reflection, Unusable, Verdict
from agent_service.core.replacing import replace
from agent_service.core.state import Asking, DoneItem, RunState, Spent, Status

MAX_FACTS = 100
LONGEST_WAIT_S = 86400.0
MODEL_BACKOFF_S = (2.0, 5.0, 15.0, 30.0, 60.0)


def ask(state: RunState, phase: Phase, *, at: datetime, feedback: tuple[str, ...] = (), repairs: int = 0) -> Transition:
    """Ask the model for `phase`, unless a budget forbids it. A paused run keeps the question for later."""
    reached = limits.reached_before_a_call(state, at)
    if phase is Phase.PLAN:
        reached = reached or limits.reached_before_a_step(state, at)
    asking = Asking(call=state.calls + 1, phase=phase, feedback=feedback, repairs=repairs)
    if reached and state.status is not Status.PAUSED:
        return endings.out_of_budget(state, reached, at=at, question=asking)
    asked = replace(state, asking=asking, calls=asking.call, updated_at=at)
    if asked.status is Status.PAUSED:
        return Transition(state=asked)
    return Transition(state=asked, effects=(AskModel(call=asking.call, phase=phase),))


def on_reply(state: RunState, reply: ModelReplied) -> Transition:
    """Take up a decision. `state` is already counted one entry further; the call is the one asked for."""
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    state = replace(state, asking=None, spent=_add(state.spent, reply), updated_at=reply.at)
    match reply.decision:
        case Framing() as framing if asking.phase is Phase.FRAME and not framing.flaws():
            return _framed(state, framing, at=reply.at)
        case Plan() as plan if asking.phase is Phase.PLAN:
            return _planned(state, plan, asking, at=reply.at)
        case Reflection() as reflection if asking.phase is Phase.REFLECT:
            return _reflected(state, reflection, reply.plan, at=reply.at)
        case Unusable(reason=reason):
            return _ask_again(state, asking, (reason,), at=reply.at)
        case Framing() as framing:
            return _ask_again(state, asking, framing.flaws() or _wrong_kind(asking), at=reply.at)
        case _:
            return _ask_again(state, asking, _wrong_kind(asking), at=reply.at)


def on_unavailable(state: RunState, event: ModelUnavailable) -> Transition:
    """The model gave no answer: wait durably, pause, fail or escalate, as the remedy says. No attempt is charged."""
    asking = state.asking
    assert asking is not None, "the caller has matched the call"
    match event.remedy:
        case "fail":
            return endings.fail(state, event.error_class, event.message, at=event.at)
        case "escalate":
            return endings.escalate(state, event.error_class, event.message, at=event.at)
        case "pause":
            return endings.pause(state, event.error_class, event.message, at=event.at, question=asking)
        case "try_again":
            delay = timedelta(seconds=_delay_s(asking, event.retry_after_s))
            waiting = replace(asking, tries=asking.tries + 1, retry_at=event.at + delay)
            waited = replace(state, asking=waiting, updated_at=event.at, summary=f"model unavailable: {event.message}")
            return Transition(state=waited)


def ask_now(state: RunState, at: datetime) -> Transition:
    """Make the call that was put off: its delay is over, or the run was resumed."""
    asking = state.asking
    assert asking is not None, "the caller has looked"
    reached = limits.reached_before_a_call(state, at)
    if asking.phase is Phase.PLAN:
        reached = reached or limits.reached_before_a_step(state, at)
    if reached:
        return endings.out_of_budget(state, reached, at=at, question=asking)
    now = replace(state, asking=replace(asking, retry_at=None), updated_at=at)
    return Transition(state=now, effects=(AskModel(call=asking.call, phase=asking.phase),))


def next_question(state: RunState, phase: Phase) -> Asking:
    """The call that would be made next."""
    return Asking(call=state.calls + 1, phase=phase)


def _delay_s(asking: Asking, wished_s: float | None) -> float:
    """The provider's wish, where it is a sensible one, else a backoff."""
    if wished_s is not None and 0 <= wished_s <= LONGEST_WAIT_S:
        return wished_s
    return MODEL_BACKOFF_S[min(asking.tries, len(MODEL_BACKOFF_S) - 1)]


def _framed(state: RunState, framing: Framing, *, at: datetime) -> Transition:
    items = tuple(DoneItem(id=f"d{n}", text=text) for n, text in enumerate(framing.definition_of_done, start=1))
    framed = replace(state, framing=framing, done_items=items, summary=f"framed: {framing.goal_statement}")
    asked = ask(framed, Phase.PLAN, at=at)
    return _with_progress(framed, asked, "frame", framed.summary)


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
        return endings.out_of_budget(planned, reached, at=at, question=next_question(planned, Phase.PLAN))
    return dispatch(planned, plan.action, at=at)


def _reflected(state: RunState, reflection: Reflection, plan: Plan | Unusable | None, *, at: datetime) -> Transition:
    items, refusals = _ticked(state, reflection.met)
    reflected = replace(
        state,
        done_items=items,
        facts=(*state.facts, *(f for f in reflection.facts if f not in state.facts))[-MAX_FACTS:],
        outline=state.outline if reflection.outline is None else reflection.outline,
        summary=reflection.summary,
    )
    match reflection.verdict:
        case Verdict.DONE:
            return _done(reflected, reflection, refusals, at=at)
        case Verdict.REFRAME:
            return _reframed(reflected, reflection, at=at)
        case Verdict.ESCALATE:
            return endings.escalate(reflected, "model", reflection.summary, at=at)
        case Verdict.CONTINUE:
            return _continued(reflected, plan, refusals, at=at)


def _done(state: RunState, reflection: Reflection, refusals: tuple[str, ...], *, at: datetime) -> Transition:
    still_open = tuple(f"item {i.id} is still open: {i.text}" for i in state.done_items if not i.done)
    if not still_open and not refusals:
        return endings.complete(state, reflection.outcome or reflection.summary, at)
    refused = replace(state, refused_done=state.refused_done + 1)
    if refused.refused_done > state.brief.limits.max_refused_done:
        reason = f"`done` was claimed {refused.refused_done} times: {'; '.join((*refusals, *still_open))}"
        return endings.escalate(refused, "done_refused", reason, at=at)
    feedback = ("`done` was refused", *refusals, *still_open)
    return _with_progress(refused, ask(refused, Phase.REFLECT, at=at, feedback=feedback), "reflect", "done was refused")


def _reframed(state: RunState, reflection: Reflection, *, at: datetime) -> Transition:
    reframed = replace(state, reframes=state.reframes + 1)
    allowed = state.brief.limits.max_reframes
    if reframed.reframes > allowed:
        spent = ("budget_reframes", f"all {allowed} reframes are used")
        return endings.out_of_budget(state, spent, at=at, question=next_question(state, Phase.PLAN))
    asked = ask(reframed, Phase.FRAME, at=at, feedback=(f"reframe: {reflection.summary}",))
    return _with_progress(reframed, asked, "reflect", f"reframe: {reflection.summary}")


def _continued(state: RunState, plan: Plan | Unusable | None, refusals: tuple[str, ...], *, at: datetime) -> Transition:
    if isinstance(plan, Plan):
        return _planned(state, plan, Asking(call=state.calls, phase=Phase.PLAN, feedback=refusals), at=at)
    if isinstance(plan, Unusable):
        return _ask_again(state, Asking(call=state.calls, phase=Phase.PLAN), (plan.reason,), at=at)
    return _with_progress(state, ask(state, Phase.PLAN, at=at, feedback=refusals), "reflect", state.summary)


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


def _ask_again(state: RunState, asking: Asking, flaws: tuple[str, ...], *, at: datetime) -> Transition:
    repairs = asking.repairs + 1
    if repairs > state.brief.limits.max_repairs:
        reason = f"the model gave no usable {asking.phase} in {repairs} tries: {'; '.join(flaws)}"
        return endings.escalate(state, "invalid_decision", reason, at=at)
    return ask(state, asking.phase, at=at, feedback=(*asking.feedback, *flaws), repairs=repairs)


def _wrong_kind(asking: Asking) -> tuple[str, ...]:
    return (f"the reply is no decision of phase {asking.phase}",)


def _with_progress(state: RunState, then: Transition, phase: endings.ProgressPhase, summary: str) -> Transition:
    """Say what was decided, unless the run has ended meanwhile and says so itself."""
    if then.state is None or then.state.status is not Status.RUNNING:
        return then
    return replace(then, effects=(endings.progress(state, phase, summary), *then.effects))


def _add(spent: Spent, reply: ModelReplied) -> Spent:
    usage = reply.usage
    known = spent.cost_usd is not None and usage.cost_usd is not None
    return Spent(
        calls=spent.calls + 1,
        input_tokens=spent.input_tokens + usage.input_tokens,
        output_tokens=spent.output_tokens + usage.output_tokens,
        cost_usd=spent.cost_usd + usage.cost_usd if known else None,  # type: ignore[operator] # both known
    )
