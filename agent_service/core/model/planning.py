"""Plan: one next action, several reads, a question to a person, or a wait; each is checked before it is carried out."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from agent_service.core import endings, limits
from agent_service.core.facts import PersonAsked, Slept
from agent_service.core.model.asking import ask, ask_again, next_question, phase_of_next
from agent_service.core.people import approving
from agent_service.core.phases import Action, Ask, Next, Phase, Plan, Unusable, Wait
from agent_service.core.state import RunState, replace, with_facts
from agent_service.core.tools import acting, finishing, grants
from agent_service.core.tools.acting import dispatch, flaws_of_action, is_stuck, unknown_artifacts
from agent_service.core.waiting import Asking, Deciding, NeedsPerson, Planned, Question, Sleeping


def take_plan(state: RunState, plan: Plan, asking: Asking) -> RunState:
    flaws = flaws_of_plan(state, plan)
    if flaws:
        return ask_again(state, asking, flaws)
    stuck = next((action for action in plan.actions if is_stuck(state, action)), None)
    if stuck:
        reason = f"the same call of {stuck.tool} brought the same result three times, and was planned again"
        return endings.escalate(state, "stuck_loop", reason)
    planned = replace(state, plan=plan, outline=plan.outline or state.outline)
    return carry_out(planned, plan)


def flaws_of_plan(state: RunState, plan: Plan) -> tuple[str, ...]:
    """Whatever a person would allow; empty when it may be carried out."""
    flaws = (
        flaw
        for action in plan.actions
        for flaw in (*flaws_of_action(state.brief, action), *unknown_artifacts(state, action))
    )
    settled = (*approving.flaws_of(state, plan.action), *finishing.flaws_of_doubt(state, plan.action))
    return *flaws, *settled, *flaws_of_reads(state, plan), *grants.flaws_of(state, plan.actions)


def writes(state: RunState, plan: Plan) -> bool:
    return any(command is None or command.tier == "write" for command in map(state.brief.command, plan.actions))


def carry_out(state: RunState, plan: Plan) -> RunState:
    reached = limits.reached_before_a_step(state)
    if reached:
        kept = replace(state, waiting=Planned(plan=plan))
        return endings.out_of_budget(kept, reached, question=next_question(state, Phase.PLAN))
    if flaws := flaws_of_reads(state, plan):  # less is left than when it was planned
        return ask(state, Phase.PLAN, feedback=flaws)
    why = approving.why_needed(state, plan.action)
    if why and not approving.is_allowed(state, plan):
        return approving.ask_approval(state, plan, why)
    return dispatch(state, plan)


def take_next(state: RunState, chosen: Next | Unusable, refusals: tuple[str, ...], *, repairs: int = 0) -> RunState:
    asking = Asking(call=state.calls, phase=Phase.PLAN, feedback=refusals, repairs=repairs)
    match chosen:
        case Plan():
            return take_plan(state, chosen, asking)
        case Unusable(reason=reason, flaws=flaws):
            return ask_again(state, asking, flaws or (reason,), reply=chosen)
        case Ask():
            return take_question(state, chosen, asking)
        case Wait():
            return take_wait(state, chosen, asking)


def take_question(state: RunState, question: Ask, asking: Asking) -> RunState:
    if flaws := flaws_of_question(state, question):
        return _rest_again(state, asking, flaws)
    return ask_person(state, question)


def take_wait(state: RunState, wait: Wait, asking: Asking) -> RunState:
    if flaws := flaws_of_wait(state, wait, state.updated_at):
        return _rest_again(state, asking, flaws)
    return wait_for(state, wait)


def _rest_again(state: RunState, asking: Asking, flaws: tuple[str, ...]) -> RunState:
    phase = phase_of_next(state) if asking.phase is Phase.PLAN else asking.phase
    return ask_again(state, replace(asking, phase=phase), flaws)


def flaws_of_reads(state: RunState, plan: Plan) -> tuple[str, ...]:
    return tuple(_flaws(state, plan)) if plan.also else ()


def most(state: RunState) -> int:
    granted = state.brief.limits
    left = min(granted.max_steps - limits.steps_taken(state), acting.attempts_left(state))
    return min(granted.parallel_reads, left) if left > 0 else granted.parallel_reads


def _flaws(state: RunState, plan: Plan) -> Iterator[str]:
    planned, may = len(plan.actions), most(state)
    if planned > may:
        yield f"the plan has {planned} actions, and {'one' if may == 1 else f'at most {may}'} may be planned now"
    for action in plan.actions:
        if why := _why_alone(state, action):
            yield f"{action.tool} {action.command} has to be planned alone: {why}"
    if len({acting.name_of_call(action) for action in plan.actions}) < planned:
        yield "the plan has the same action twice"


def _why_alone(state: RunState, action: Action) -> str:
    command = state.brief.command(action)
    reads = command is not None and command.tier == "read"
    if not reads and not grants.needs_one(state.brief, action.tool):
        return "it is no read"
    return approving.why_needed(state, action)


LEAST_S = 1.0
MOST_IN_A_ROW = 10
"""Waits without a step between them: each is a model call, and nothing is looked at."""
LONGEST_S = 30 * 86400.0


def flaws_of_wait(state: RunState, wait: Wait, at: datetime) -> tuple[str, ...]:
    if flaws := flaws_of_instant(wait, at):
        return flaws
    deadline = state.brief.limits.deadline_at
    if _until(wait, at) >= deadline:
        return (f"the wait does not end before the deadline of the run, {deadline:%Y-%m-%dT%H:%M:%SZ}",)
    often = f"you have waited {state.waits} times since the newest step: look at something, ask, or escalate"
    return (often,) if state.waits >= MOST_IN_A_ROW else ()


def flaws_of_instant(wait: Wait, at: datetime) -> tuple[str, ...]:
    if (wait.until is None) == (wait.seconds is None):
        return ("wait needs one of seconds and until",)
    if wait.seconds is not None and not LEAST_S <= wait.seconds <= LONGEST_S:
        return (f"wait.seconds is {wait.seconds}: it must be at least {LEAST_S:g} and at most {LONGEST_S:.0f}",)
    if wait.until is not None and wait.until.tzinfo is None:
        return ("wait.until needs its time zone, such as Z for UTC",)
    if wait.until is not None and wait.until <= at:
        return (f"wait.until has passed: it is {at:%Y-%m-%dT%H:%M:%SZ}",)
    return ()


def _until(wait: Wait, at: datetime) -> datetime:
    return wait.until or at + timedelta(seconds=wait.seconds or 0.0)


def wait_for(state: RunState, wait: Wait) -> RunState:
    waiting = Sleeping(until=_until(wait, state.updated_at), since=state.updated_at, why=wait.why)
    summary = f"waits until {waiting.until:%Y-%m-%dT%H:%M:%SZ}: {wait.why}"
    resting = replace(state, waiting=waiting, waited_at_step=state.step, waits=state.waits + 1, summary=summary)
    return with_facts(resting, Slept(until=waiting.until, why=wait.why))


def wake_up(state: RunState) -> RunState:
    waited = state.waiting
    told = f"you have waited since {waited.since:%H:%M} UTC: {waited.why}" if isinstance(waited, Sleeping) else ""
    going_on = replace(state, waiting=Deciding())
    return ask(going_on, phase_of_next(state), feedback=(told,) if told else ())


MOST_CHOICES = 12


def flaws_of_question(state: RunState, question: Ask) -> tuple[str, ...]:
    most, flaws = state.brief.limits.max_questions, []
    if state.questions >= most:
        flaws.append(f"all {most} questions are asked: decide without an answer, or escalate")
    if not question.question.strip():
        flaws.append("the question is blank")
    if len(question.choices) > MOST_CHOICES or any(not choice.strip() for choice in question.choices):
        flaws.append(f"a question has at most {MOST_CHOICES} choices, none of them blank")
    return tuple(flaws)


def ask_person(state: RunState, question: Ask) -> RunState:
    """Then the model is asked what follows, or to frame if it has not."""
    waiting = NeedsPerson(
        ask=Question(ask=question, phase=Phase.REFLECT if state.framing else Phase.FRAME),
        since=state.updated_at,
        expires_at=limits.expires_at(state.brief.limits, state.updated_at, state.brief.limits.answer_s),
        entry=state.version,
    )
    resting = replace(state, waiting=waiting, questions=state.questions + 1, summary=f"asks: {question.question}")
    return with_facts(resting, PersonAsked(ask=waiting.ask, expires_at=waiting.expires_at))


def question_answered(state: RunState, question: Question, *, by_message: bool) -> RunState:
    """The answer is among the notes already; `by_message`: with what a person said in its place."""
    why = "a person spoke while your question waited, which may answer it or not"
    why = why if by_message else "your question was answered"
    return ask(replace(state, waiting=Deciding()), question.phase, feedback=(why,))


def question_expired(state: RunState, question: Question) -> RunState:
    return endings.escalate(state, "unanswered", f"nobody answered in time: {question.ask.question}")
