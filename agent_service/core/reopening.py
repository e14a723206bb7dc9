"""Reopening: a person's answer sets an escalated run going again.

Not too late, and with a spent budget raised. The person says whether a write in doubt was carried out, or the model
looks first; others in flight are waited for, and are in doubt after their time. Only a known failure is sent again.
"""

from datetime import datetime, timedelta

from agent_service.core import acting, asking, continuing, finishing, hearing, limits, results
from agent_service.core.events import SignalReceived
from agent_service.core.facts import Reopened
from agent_service.core.in_flight import answer, graph_of
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import Acting, Deciding, Ended, Pending, Planned, Queued, Status, Waiting, acting_of
from agent_service.sentences import Text, say
from schemas.events import Outcome, ToolError, ToolOutput, ToolResult
from schemas.values import replace

RAISED = {
    "budget_steps": "max_steps",
    "budget_reframes": "max_reframes",
    "budget_tokens": "max_tokens",
    "budget_cost": "max_cost_usd",
    "budget_time": "deadline_at",
}


def reopen(state: RunState, event: SignalReceived) -> RunState | Text:
    ended = state.waiting
    assert isinstance(ended, Ended)
    if flaw := _flaw(state, ended, event):
        return flaw
    held = ended.held or Deciding()
    if event.signal.outcome is not None and (unclear := _unclear(state, held, ended)):
        return say("outcome_unclear", why=unclear)
    running = _running(hearing.told(limits.extend_deadline(state, ended.at), event))
    if spent := _not_raised(state, running, ended):
        return say("raise_with_answer", why=spent, limit=RAISED.get(ended.stop.ending_class, "deadline_at"))
    then = _with_what_was_open(continuing.heeding(replace(running, waiting=held), before=state), ended, event)
    return _told_of(then, ended)


def _told_of(state: RunState, ended: Ended) -> RunState:
    held = acting_of(ended.held).pendings
    kept = tuple(pending.name for pending in acting_of(state.waiting).pendings if pending in held)
    tasks = ((one.step, task.id, task.round) for one in state.graphs for task in one.tasks)
    reopened = Reopened(ending_class=ended.stop.ending_class, waits_for=kept, tasks=tuple(tasks))
    return replace(state, happened=(reopened, *state.happened))


def _flaw(state: RunState, ended: Ended, event: SignalReceived) -> Text:
    if ended.status is not Status.ESCALATED:
        return say("has_ended", status=ended.status)
    if event.signal.kind != "answer":
        return say("answer_reopens", status=ended.status)
    if parent := state.brief.as_step:
        return say("was_a_step", step=parent.step, run=parent.run_id)
    if not event.signal.message and event.signal.outcome is None:
        return say("answer_without_message")
    if event.at > closes_at(state, ended):
        return say("reopened_too_late", days=state.brief.limits.reopen_days)
    return ""


def closes_at(state: RunState, ended: Ended) -> datetime:
    return ended.at + timedelta(days=state.brief.limits.reopen_days)


def _running(state: RunState) -> RunState:
    return replace(
        limits.with_more_attempts(state),
        waiting=Deciding(),
        claim=None,
        proposed=None,
        refused_done=0,
        waited_at_step=state.step,
        reopened=state.reopened + 1,
        summary=say("reopened"),
    )


def _not_raised(before: RunState, running: RunState, ended: Ended) -> Text:
    limit = RAISED.get(ended.stop.ending_class)
    if limit and getattr(running.brief.limits, limit) <= getattr(before.brief.limits, limit):
        return ended.stop.reason
    reached = limits.reached_before_a_call(running)
    if limit == "max_steps" or isinstance(ended.held, Planned):
        reached = reached or limits.reached_before_a_step(running)
    return reached[1] if reached else ""


def _with_what_was_open(state: RunState, ended: Ended, event: SignalReceived) -> RunState:
    if isinstance(state.waiting, Planned):
        return hearing.go_on(state, said=state.words > state.shown)
    if state.started_at is None:  # it ended while it waited for its turn
        return replace(state, waiting=Queued())
    if isinstance(state.waiting, Deciding):
        why = say("goes_on_with_answer", ending=ended.stop.ending_class)
        return asking.think_anew(state, feedback=(why,))
    state = _graphs_on(state, event.at - ended.at)
    meant = _meant(state, state.waiting, ended)
    for pending in state.pendings:
        state = _with_the_step(state, pending, ended, event, _said_of(pending, meant, event))
    if state.graphs:
        return continuing.launch(state)
    return asking.reflect(state) if isinstance(state.waiting, Deciding) else state


def _graphs_on(state: RunState, waited: timedelta) -> RunState:
    held = state.waiting
    return replace(state, waiting=held.with_later_graphs(waited)) if isinstance(held, Acting) else state


def _with_the_step(
    state: RunState, pending: Pending, ended: Ended, event: SignalReceived, outcome: Outcome
) -> RunState:
    result = results.known(ended, pending)
    if result is None and ended.held and _may_still_come(state, pending, ended, outcome):
        return state
    if result is None:
        result = _by_word(state, pending, event, outcome)
        unknown = result.error is not None and result.error.error_class == "in_doubt"
        doubted = unknown and not acting.is_repeatable(state, pending)
        state = finishing.with_doubt(state, pending) if doubted else state
    else:
        state = finishing.with_taint(state, pending, result)
        state = with_facts(state, answer(pending, "ok" if result.status == "ok" else "error", result.error))
    if graph_of(state.waiting, pending.step):
        return continuing.settled(state, pending, result)
    return finishing.finish_step(state, pending, result)


def _may_still_come(state: RunState, pending: Pending, ended: Ended, outcome: Outcome) -> bool:
    if not _in_question(state, pending, ended):
        return True
    return not results.came_of(ended, pending) and state.updated_at < pending.deadline_at and outcome == "look"


def _in_question(state: RunState, pending: Pending, ended: Ended) -> bool:
    return not acting.is_repeatable(state, pending) or bool(results.came_of(ended, pending))


def _meant(state: RunState, held: Waiting, ended: Ended) -> tuple[Pending, ...]:
    asked = acting_of(held).pendings
    unknown = (one for one in asked if _in_question(state, one, ended) and results.known(ended, one) is None)
    return tuple(one for one in asked if results.was_first_in_doubt(ended, one)) or tuple(unknown)


def _unclear(state: RunState, held: Waiting, ended: Ended) -> Text:
    if not any(_in_question(state, pending, ended) for pending in acting_of(held).pendings):
        return say("nothing_in_doubt")
    several = [f"step {one.step} {one.task}".rstrip() for one in _meant(state, held, ended)]
    return say("several_in_doubt", writes=", ".join(several)) if len(several) > 1 else ""


def _said_of(pending: Pending, meant: tuple[Pending, ...], event: SignalReceived) -> Outcome:
    return finishing.outcome_of(event.signal) if meant == (pending,) else "look"


def _by_word(state: RunState, pending: Pending, event: SignalReceived, outcome: Outcome) -> ToolResult:
    message = event.signal.message or ""
    output, error = None, None
    match outcome:
        case "ran":
            said = message or str(say("was_carried_out"))
            output = ToolOutput.model_validate({"summary": said, "said_by": "a person"})
        case "did_not_run":
            said = str(say("not_carried_out", message=message))
            error = ToolError(error_class="did_not_run", message=said)
        case "look":
            said = str(say("carried_out_unknown", message=message))
            error = ToolError(error_class="in_doubt", message=said)
    return finishing.in_place_of(state, pending, error=error, output=output)
