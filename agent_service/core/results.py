"""What a tool's result means: its step is finished, retried, or handed to a person.

`correlate` says which result it is; only an answer to the pending attempt finishes a step. Parallel reads are judged
one by one, and the model reflects when the last is finished. Continuations are in `continuing`.
"""

from datetime import datetime

from agent_service.core import acting, continuing, endings, finishing, grants
from agent_service.core.correlate import Relation, judge, unbelieved
from agent_service.core.events import Refusal, ToolReturned
from agent_service.core.facts import AnswerStatus, AttemptAnswered
from agent_service.core.in_flight import answer, graph_of, pending_of, with_graph, with_pending
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import AGAIN, Ended, Pending, TaskGraph, acting_of
from agent_service.sentences import Text, instant, say
from schemas import keys
from schemas.events import ToolError, ToolResult
from schemas.values import replace

_IN_DOUBT = {"error_class": "in_doubt", "retryable": False}
_UNHEARD = ToolError(
    error_class="timeout",
    message=str(say("answer_dropped")),
    retryable=True,
)
MOST_LATE = 20
"""Late results that a journal keeps; log and metrics tell of more."""
HANDED_TO_A_PERSON = frozenset({"in_doubt", "configuration", "not_allowed", "storage_full"})
"""Error classes that neither another attempt nor another plan can mend."""


def on_result(state: RunState, event: ToolReturned) -> RunState | Text | Refusal:
    judgement = judge(state, event.result, event.place)
    if why := unbelieved(state, event.result, event.proof, judgement.relation):
        return Refusal(why)
    if event.malformed and judgement.relation is not Relation.MATCH:
        return judgement.reason
    match judgement.relation:
        case Relation.STALE:
            return judgement.reason
        case Relation.LATE:
            return _on_late(state, event, judgement.reason)
        case Relation.VIOLATION:
            unasked = with_facts(state, _answered_unasked(state, event.result, "refused"))
            return endings.escalate(unasked, "protocol_violation", judgement.reason)
        case Relation.MATCH:
            assert judgement.pending is not None, "what matches answers an attempt"
            return _take(state, judgement.pending, event)


def _take(state: RunState, pending: Pending, event: ToolReturned) -> RunState:
    result = event.result
    if event.place:
        state, pending = _with_nameless(state, pending, event.place)
    if result.status == "ok":
        state = finishing.with_taint(state, pending, result)
        answered = with_facts(state, answer(pending, "ok"))
        return continuing.take_answer(answered, pending, result)
    if result.status == "continuation" and not event.malformed:
        state = finishing.with_taint(state, pending, result)
        return continuing.take_continuation(state, pending, result, unfit=event.unfit)
    error = _malformed(state, pending, result) if event.malformed else _as_error(result)
    return _on_error(state, pending, error, brought=True)


def on_due(state: RunState) -> RunState:
    due = min(acting_of(state.waiting).timed, key=lambda one: one.due_at)
    if isinstance(due, TaskGraph):
        return continuing.on_time_over(state, due)
    return _on_silence(state, due) if due.retry_at is None else acting.send(state, due)


def _on_silence(state: RunState, pending: Pending) -> RunState:
    repeatable = acting.is_repeatable(state, pending)
    error = ToolError(
        error_class="timeout" if repeatable else "in_doubt",
        message=str(say("no_result", deadline=instant(pending.deadline_at))),
        retryable=repeatable,
    )
    return _on_error(state, pending, finishing.in_place_of(state, pending, error=error))


def unheard(state: RunState, *, at: datetime) -> tuple[ToolResult, ...]:
    """Ends attempts whose answers a stream may have dropped, by a repetition. The last allowed one goes on waiting. An
    executor that answers without naming attempts may give all answers one id.
    """
    return tuple(
        finishing.in_place_of(state, pending, error=_UNHEARD, at=at)
        for pending in state.sent
        if pending.nameless and 1 < pending.attempt < state.brief.limits.max_attempts
        if acting.is_repeatable(state, pending) and acting.attempts_left(state) > 0
    )


def _with_nameless(state: RunState, pending: Pending, place: str) -> tuple[RunState, Pending]:
    pending = replace(pending, nameless=(*pending.nameless, place))
    state = replace(state, waiting=with_pending(state.waiting, pending))
    graph = graph_of(state.waiting, pending.step)
    if graph is None:
        return state, pending
    known = replace(graph, nameless=(*graph.nameless, place))
    return with_graph(state, known, state.pendings), pending


def _malformed(state: RunState, pending: Pending, result: ToolResult) -> ToolResult:
    if result.error is None or acting.is_repeatable(state, pending):
        return result
    return result.model_copy(update={"error": result.error.model_copy(update=_IN_DOUBT)})


def _on_late(state: RunState, event: ToolReturned, why: Text) -> RunState | Text | Refusal:
    result, kept = event.result, grants.settled_late(_kept(state, event), event.result)
    if result.task:
        call = keys.call(state.run_id, result.step, result.tool, result.attempt or 1, result.task, result.round)
        which = replace(kept, late_tasks=tuple(dict.fromkeys((*state.late_tasks, call))))
        known = call in state.late_tasks
    else:
        place = (result.step, result.attempt or 1)
        which = replace(kept, late=tuple(dict.fromkeys((*state.late, place))))
        known = place in state.late
    if kept is state and (known or state.has_finished(result.step)):
        return why
    if kept is state and len(state.late) + len(state.late_tasks) >= MOST_LATE:
        return say("too_many_late", why=why, most=MOST_LATE)
    return with_facts(which, _answered_unasked(state, result, "late"))


def _answered_unasked(state: RunState, result: ToolResult, status: AnswerStatus) -> AttemptAnswered:
    task, asked_in = result.task or "", result.round or 0
    pending = pending_of(state.waiting, result.step, task, asked_in)
    newest = pending.attempt if pending else 1
    return AttemptAnswered(
        step=result.step,
        task=task,
        round=asked_in,
        attempt=result.attempt or newest,
        tool=result.tool,
        status=status,
        error=result.error,
    )


def _kept(state: RunState, event: ToolReturned) -> RunState:
    ended = state.waiting
    if not isinstance(ended, Ended) or ended.held is None or event.malformed:
        return state
    judged = judge(replace(state, waiting=ended.held), event.result, event.place)
    if judged.pending is None or known(ended, judged.pending):
        return state
    result = event.result if event.result.status == "ok" else _as_error(event.result)
    return replace(state, waiting=replace(ended, came=(*ended.came, result)))


def came_of(ended: Ended, pending: Pending) -> tuple[ToolResult, ...]:
    return tuple(r for r in ended.came if (r.step, r.task or "", r.round or 0) == pending.name)


def was_first_in_doubt(ended: Ended, pending: Pending) -> bool:
    first = ended.came[:1]
    return came_of(ended, pending)[:1] == first != () and _is_in_doubt(first[0])


def known(ended: Ended, pending: Pending) -> ToolResult | None:
    return next((r for r in came_of(ended, pending) if not _is_in_doubt(r)), None)


def _is_in_doubt(result: ToolResult) -> bool:
    return result.error is not None and result.error.error_class == "in_doubt"


def _as_error(result: ToolResult) -> ToolResult:
    if result.status == "error":
        return result if result.error else result.model_copy(update={"error": ToolError(message=str(say("no_reason")))})
    error = ToolError(error_class="continuation", message=str(say("malformed_continuation")))
    return result.model_copy(update={"error": error})


def _on_error(state: RunState, pending: Pending, result: ToolResult, *, brought: bool = False) -> RunState:
    """`brought`: by its executor, and not made here because none came."""
    error, graph = result.error, graph_of(state.waiting, pending.step)
    assert error is not None, "an error result carries its error"
    state = with_facts(state, answer(pending, "error", error))
    stopped = graph is not None and graph.stopped
    again = None if stopped else acting.retry(state, pending, error)
    if again:
        return again
    state = finishing.with_taint(state, pending, result) if brought else state
    what = say(
        "failed",
        step=pending.step,
        task=pending.task,
        tool=pending.action.tool,
        error_class=error.error_class,
        job=error.job_id,
        message=error.message,
    )
    of_task = pending.task not in ("", AGAIN)
    if error.error_class == "in_doubt" or (error.error_class in HANDED_TO_A_PERSON and not of_task):
        return endings.escalate(state, error.error_class, what, came=(result,))
    alone = graph is None and (state.plan is None or not state.plan.also)
    if alone and acting.could_be_retried(state, pending, error):
        what = say("failed_for_good", what=what, attempt=pending.attempt)
        return endings.escalate(state, _spent_attempts(state), what, came=(result,))
    return continuing.take_answer(state, pending, result)


def _spent_attempts(state: RunState) -> str:
    of_run = state.attempts >= state.brief.limits.max_attempts_of_run
    return "budget_attempts" if of_run else "tool_exhausted"
