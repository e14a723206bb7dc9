"""Planning: checks and carries out one next action, several reads, a question to a person, or a wait.

A person approves an action first if the operator's rule says so, or, in a tainted run, if it is an external write or a
read that may carry data out. An approval covers one command with its arguments.
"""

from datetime import datetime, timedelta

from agent_service.core import acting, egress, limits
from agent_service.core.asking import ask, ask_again, ask_person, escalate, next_phase, out_of_budget, restart_phase
from agent_service.core.facts import Ruled, Slept
from agent_service.core.phases import Action, AskPerson, Framing, Next, Phase, Plan, Unusable, Wait
from agent_service.core.state import RunState, with_decision_status, with_facts
from agent_service.core.waiting import Acting, Approval, OpenCall, Pending, Planned, Question, Sleeping
from agent_service.sentences import Text, instant, say
from schemas.values import replace

LEAST_S, LONGEST_S = 1.0, 30 * 86400.0
MOST_IN_A_ROW = 10
"""Waits without a step between them: each costs a model call and brings nothing new."""
MOST_CHOICES = 12


def take_along(state: RunState, chosen: Next | Unusable, *, repairs: int = 0) -> RunState:
    call = OpenCall(call=state.calls, phase=Phase.PLAN, repairs=repairs)
    return take_next(with_decision_status(state, "ok"), call, None, chosen)


def take_next(state: RunState, open_call: OpenCall, _: object, chosen: Next | Unusable) -> RunState:
    match chosen:
        case Plan():
            return _take_plan(state, chosen, open_call)
        case Unusable(reason=reason, flaws=flaws):
            return ask_again(state, open_call, flaws or (reason,), reply=chosen)
        case AskPerson():
            if not (wrong := question_flaws(state, chosen)):
                counted = replace(state, questions=state.questions + 1)
                ask, summary = Question(ask=chosen, phase=restart_phase(state)), say("asks", question=chosen.question)
                return ask_person(counted, ask, summary)
        case Wait():
            if not (wrong := wait_flaws(state, chosen, state.updated_at)):
                return wait_for(state, chosen)
    phase = next_phase(state) if open_call.phase is Phase.PLAN else open_call.phase
    return ask_again(state, replace(open_call, phase=phase), wrong)


def _take_plan(state: RunState, plan: Plan, open_call: OpenCall) -> RunState:
    if flaws := plan_flaws(state, plan):
        return ask_again(state, open_call, flaws)
    if stuck := acting.stuck_action(state, plan):
        why = say("stuck", tool=stuck.tool)
        return escalate(with_decision_status(state, "refused", "stuck_loop", (why,)), "stuck_loop", why)
    return carry_out(replace(state, plan=plan, outline=plan.outline or state.outline), plan)


def carry_out(state: RunState, plan: Plan) -> RunState:
    if reached := limits.reached_before_a_step(state):
        kept = replace(with_decision_status(state, "refused", reached[0], reached[1:]), waiting=Planned(plan=plan))
        return out_of_budget(kept, reached)
    if plan.also and (flaws := _flaws_of_reads(state, plan)):  # less is left than when it was planned
        return ask(state, Phase.PLAN, feedback=tuple(flaws))
    now = "approved", state.step + 1, state.words
    rulings = [one for one in state.rulings if (one.verdict, one.step, one.words) == now]
    by = next((one.by for one in rulings if one.subject_hash == subject_hash(plan)), None)
    if by is None and (why := approval_reason(state, plan.action)):
        return ask_approval(state, plan, why)
    return acting.dispatch(state, plan, by=by or "")


def plan_writes(state: RunState, plan: Plan) -> bool:
    return any(map(state.brief.writes, plan.actions))


# Flaws of a plan


def plan_flaws(state: RunState, plan: Plan) -> tuple[Text, ...]:
    """Flaws that no approval can heal; empty if the plan may be carried out."""
    flaws, actions = list[Text](), plan.actions
    for action in actions:
        flaws += (*acting.action_flaws(state.brief, action), *acting.artifact_flaws(state, action))
    flaws += (*refusal_flaws(state, plan.action), *acting.doubt_flaws(state, plan.action))
    if plan.also:
        flaws += _flaws_of_reads(state, plan)
    return *flaws, *limits.child_flaws(state, actions)


def _flaws_of_reads(state: RunState, plan: Plan) -> list[Text]:
    actions, most, flaws = plan.actions, max_actions(state), list[Text]()
    if len(actions) > most:
        flaws.append(say("too_many_actions", planned=len(actions), most=most))
    for action in actions:
        if why := _why_alone(state, action):
            flaws.append(say("planned_alone", tool=action.tool, command=action.command, why=why))
    if len(set(map(acting.call_hash, actions))) < len(actions):
        flaws.append(say("same_action_twice"))
    return flaws


def max_actions(state: RunState) -> int:
    most = state.brief.limits
    left = min(most.max_steps - limits.steps_taken(state), acting.attempts_left(state))
    return min(most.parallel_reads, left) if left > 0 else most.parallel_reads


def _why_alone(state: RunState, action: Action) -> Text:
    if state.brief.writes(action) and not limits.needs_grant(state.brief, action.tool):
        return say("no_read")
    return approval_reason(state, action)


# Approvals


def approval_reason(state: RunState, action: Action) -> Text:
    command, named = state.brief.command(action), {"tool": action.tool, "command": action.command}
    if command is None:
        return ""
    goes_out = command.tier != "read" and command.effect != "local"
    rule = command.approve or ("untrusted" if goes_out else "never")
    if rule == "always":
        return say("always_asked", **named)
    if not state.tainted_by:
        return ""
    why: Text = say("leaves_the_house") if rule == "untrusted" else ""
    if command.tier == "read" and command.approve is None:
        why = egress.read_reason(state, command, action)
    return why and say("tainted", **named, why=why, tainted_by=state.tainted_by)


def refusals_in_force(state: RunState) -> dict[str, Ruled]:
    """By subject: the newest ruling on it, if it is a refusal and people have said nothing since."""
    newest = {ruling.subject_hash: ruling for ruling in state.rulings if ruling.words >= state.words}
    return {subject: ruling for subject, ruling in newest.items() if ruling.verdict != "approved"}


def refusal_flaws(state: RunState, subject: Action | Framing) -> list[Text]:
    refused = refusals_in_force(state) if state.rulings else {}
    if not refused or not (ruling := refused.get(subject_hash(subject))):
        return []
    what = say("this_framing")
    if isinstance(subject, Action):
        what = say("these_arguments", tool=subject.tool, command=subject.command)
    return [say("not_approved", what=what, verdict=ruling.verdict, why=ruling.reason)]


def subject_hash(subject: Action | Plan | Framing | AskPerson) -> str:
    if isinstance(subject, Framing):
        return acting.digest([subject.goal_statement, subject.definition_of_done, subject.constraints])
    if isinstance(subject, AskPerson):
        return acting.digest([subject.question, subject.choices])
    return acting.call_hash(subject.action if isinstance(subject, Plan) else subject)


def ask_approval(
    state: RunState, proposal: Plan | Framing, why: Text, *, held: Acting | None = None, of: Pending | None = None
) -> RunState:
    """`held` goes on after the ruling. `of`: the sub-request that makes the call."""
    subject = subject_hash(proposal)
    if of and of.task:
        subject = acting.digest([subject, of.task, of.round])
    ask = Approval(proposal=proposal, subject_hash=subject, reason=why, **(of.ref if of else {}))
    return ask_person(state, ask, say("waits_for_approval", why=why), held=held)


# Waits and questions


def wait_flaws(state: RunState, wait: Wait, at: datetime) -> tuple[Text, ...]:
    seconds, until, deadline = wait.seconds, wait.until, state.brief.limits.deadline_at
    if (until is None) == (seconds is None) or (until is not None and until.tzinfo is None):
        return (say("wait_needs_one"),)
    if (seconds is not None and not LEAST_S <= seconds <= LONGEST_S) or not at < _until(wait, at) < deadline:
        return (say("wait_when", least=LEAST_S, now=instant(at), deadline=instant(deadline)),)
    return (say("waits_too_often", times=state.waits),) if state.waits >= MOST_IN_A_ROW else ()


def _until(wait: Wait, at: datetime) -> datetime:
    return wait.until or at + timedelta(seconds=wait.seconds or 0.0)


def wait_for(state: RunState, wait: Wait) -> RunState:
    until, since, why = _until(wait, state.updated_at), state.updated_at, wait.why
    return with_facts(
        state,
        Slept(until=until, why=why),
        waiting=Sleeping(until=until, since=since, why=why),
        waited_at_step=state.step,
        waits=state.waits + 1,
        summary=say("waits_until", until=instant(until), why=why),
    )


def wake_up(state: RunState, waited: Sleeping) -> RunState:
    over = say("waited", since=f"{waited.since:%Y-%m-%d %H:%M}", why=waited.why)
    return ask(state, next_phase(state), feedback=(over,))


def question_flaws(state: RunState, question: AskPerson) -> tuple[Text, ...]:
    most, flaws = state.brief.limits.max_questions, list[Text]()
    if state.questions >= most:
        flaws.append(say("questions_used", most=most))
    if len(question.choices) > MOST_CHOICES or not all(map(str.strip, (question.question, *question.choices))):
        flaws.append(say("question_shape", most=MOST_CHOICES))
    return tuple(flaws)
