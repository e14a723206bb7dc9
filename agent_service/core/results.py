"""Checks a tool's result against the pending requests, and takes it up (RFC-103's resume validation).

A result without an attempt (RFC-103's has none) answers the pending attempt. While several reads are pending, a result
is checked against the request of its step. While a step has sub-requests, a result names the task that it answers, or
its tool has only that one out. Only an answer to the pending attempt finishes a request.
"""

from agent_service.core import acting, asking, continuing, limits
from agent_service.core.events import CapabilityCheck, ToolReturned
from agent_service.core.facts import AnswerStatus, AttemptAnswered
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import Acting, Ended, Graph, Pending, Status, acting_of, with_requests
from agent_service.sentences import Text, instant, say
from schemas import keys
from schemas.events import ToolError, ToolResult
from schemas.values import dataclass, replace

MOST_LATE = 20
"""Late results that a journal keeps; log and metrics show all."""
HANDED_TO_A_PERSON = frozenset({"configuration", "not_allowed", "storage_full"})
"""Error classes that neither another attempt nor another plan can fix."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The reason why a result answers no request. `violates`: it was never asked for, so the run escalates. `denied`:
    its sender has no right to it.
    """

    why: Text
    violates: bool = False
    denied: bool = False


def judge(state: RunState, result: ToolResult, place: str = "") -> Pending | Unmatched:
    now, step = acting_of(state.waiting), result.step
    asked = [one for one in now.requests if one.step == step]
    if not asked:
        first, last = (now.requests[0].step, now.requests[-1].step) if now.requests else (0, 0)
        if step < first or state.has_finished(step):
            return Unmatched(say("step_finished", step=step))
        which = _which(result)
        why = say("from_the_future", which=which, pending=last) if last else say("nothing_pending", which=which)
        return Unmatched(why, violates=True)
    if place and place in state.places:
        return Unmatched(say("message_answered", step=step))
    if now.graph(step):
        asked = [one for one in asked if one.is_out and _names(result, one, place)]
    elif result.task:
        return Unmatched(say("task_never_asked", which=_which(result), task=result.task), violates=True)
    if len(asked) == 1:
        return _judge_attempt(asked[0], result)
    return Unmatched(say("answers_none", step=step, count=len(asked)))


def _which(result: ToolResult) -> Text:
    return say("which", step=result.step, attempt=result.attempt)


def _names(result: ToolResult, pending: Pending, place: str) -> bool:
    """True if the result of a step with sub-requests answers this one: by its name, or by its tool."""
    if result.task:
        return result.task == pending.task and result.round in (None, pending.round)
    return bool(place) and result.tool == pending.action.tool


def _judge_attempt(pending: Pending, result: ToolResult) -> Pending | Unmatched:
    newest = pending.attempt - bool(pending.retry_at)
    attempt = result.attempt or newest
    if result.tool != pending.action.tool:
        why = say("other_tool", which=_which(result), tool=result.tool, pending=pending.action.tool)
        return Unmatched(why, violates=True)
    if attempt > newest:
        return Unmatched(say("attempt_never_sent", attempt=attempt, step=pending.step), violates=True)
    if attempt < pending.attempt:
        return Unmatched(say("attempt_given_up", attempt=attempt, now=pending.attempt))
    return pending


def authentication_flaw(state: RunState, result: ToolResult, proof: CapabilityCheck | None, *, violates: bool) -> Text:
    """The reason to discard a result: its tool echoes capabilities, and it brings another one or none."""
    if proof in (None, "named") or (proof == "another" and violates):
        return ""
    brief, tools = state.brief, [result.tool]
    if violates:
        tools += [one.action.tool for one in acting_of(state.waiting).requests]
    is_known = brief.skill(result.tool) is not None  # else no tool of the run can have sent it
    echoing = [one for one in brief.skills if one.echoes_capability and (one.name in tools or not is_known)]
    is_believed = proof == "none" and brief.skills and not echoing
    return "" if is_believed else say("no_capability", tool=result.tool, step=result.step)


def on_result(state: RunState, event: ToolReturned) -> RunState | Text | Unmatched:
    result, late = event.result, None
    if isinstance(state.waiting, Ended):
        late = Unmatched(say("came_late", which=_which(result), status=state.waiting.status))
    judged = late or judge(state, result, event.place)
    violates = isinstance(judged, Unmatched) and judged.violates
    if why := authentication_flaw(state, result, event.proof, violates=violates):
        return Unmatched(why, denied=True)
    if isinstance(judged, Pending):
        return _take(state, judged, event)
    if event.malformed or not (violates or late):
        return judged
    if late:
        return _on_late(state, event, judged.why)
    return asking.escalate(with_facts(state, _record_of(result, "refused")), "protocol_violation", judged.why)


def _take(state: RunState, pending: Pending, event: ToolReturned) -> RunState:
    result = event.result
    if event.place:
        state = replace(state, places=(*state.places, event.place))
    if event.malformed:
        repeatable = acting.is_repeatable(state, pending)
        doubted = {} if repeatable or not result.error else {"error_class": "in_doubt", "retryable": False}
        error = result.error and result.error.model_copy(update=doubted)
        return _on_error(state, pending, result.model_copy(update={"error": error}), brought=True)
    if result.status == "ok":
        answered, tainted_by = acting.attempt_answered(pending, "ok"), acting.source_of_taint(state, pending, result)
        return continuing.take_answer(with_facts(state, answered, tainted_by=tainted_by), pending, result)
    if result.status == "continuation":
        state = replace(state, tainted_by=acting.source_of_taint(state, pending, result))
        return continuing.take_continuation(state, pending, result)
    return _on_error(state, pending, _as_error(result), brought=True)


def on_due(state: RunState) -> RunState:
    due = min(acting_of(state.waiting).timed, key=lambda one: one.due_at)
    if isinstance(due, Graph):
        most = state.brief.limits.continuations.max_plugin_total_time_ms
        return continuing.stop(state, due, say("gathering_over", most=most))
    if due.retry_at:
        return acting.send(state, due)
    repeatable, why = acting.is_repeatable(state, due), say("no_result", deadline=instant(due.deadline_at))
    error_class = "timeout" if repeatable else "in_doubt"
    return _on_error(state, due, acting.failure(state, due, error_class, why, retryable=repeatable))


def dropped_answers(state: RunState) -> tuple[ToolResult, ...]:
    """Timeouts for attempts whose answers the stream may have dropped as duplicates: an executor that names no attempts
    may give all its answers one id. The last allowed attempt goes on waiting.
    """
    if not state.places:
        return ()
    return tuple(
        acting.failure(state, pending, "timeout", say("answer_dropped"), retryable=True)
        for pending in state.sent
        if 1 < pending.attempt < state.brief.limits.max_attempts
        if acting.is_repeatable(state, pending) and acting.attempts_left(state) > 0
    )


# Errors


def _as_error(result: ToolResult) -> ToolResult:
    if result.status == "error":
        return result if result.error else result.model_copy(update={"error": ToolError(message=str(say("no_reason")))})
    error = ToolError(error_class="continuation", message=str(say("malformed_continuation")))
    return result.model_copy(update={"error": error})


def _on_error(state: RunState, pending: Pending, result: ToolResult, *, brought: bool = False) -> RunState:
    """`brought`: the executor sent it; else it stands for a missing answer."""
    error, graph = result.error, acting_of(state.waiting).graph(pending.step)
    assert error is not None, "an error result carries its error"
    answered = with_facts(state, acting.attempt_answered(pending, "error", error))
    if not (graph and graph.stopped) and (again := acting.plan_retry(answered, pending, error)):
        return again
    state = replace(answered, tainted_by=acting.source_of_taint(state, pending, result)) if brought else answered
    details = {"error_class": error.error_class, "job": error.job_id, "message": error.message}
    what = say("failed", **acting.sentence_fields(pending), **details)
    if error.error_class == "in_doubt":
        return asking.escalate(state, "in_doubt", what, doubted=pending.name)
    ending_class = error.error_class if error.error_class in HANDED_TO_A_PERSON and not pending.id else ""
    alone = graph is None and not (state.plan and state.plan.also)
    if not ending_class and alone and acting.is_retryable(state, pending, error):
        of_run = state.attempts >= state.brief.limits.max_attempts_of_run
        ending_class = "budget_attempts" if of_run else "tool_exhausted"
        what = say("failed_for_good", what=what, attempt=pending.attempt)
    if not ending_class:
        return continuing.take_answer(state, pending, result)
    kept = with_requests(state.waiting, replace(pending, answer=result))  # for a run that is reopened
    return asking.escalate(replace(state, waiting=kept), ending_class, what)


# Late results


def _on_late(state: RunState, event: ToolReturned, why: Text) -> RunState | Text:
    result, kept = event.result, _kept(state, event)
    call = keys.call(state.run_id, result.step, result.tool, result.attempt or 1, result.task, result.round)
    is_known = call in state.late or state.has_finished(result.step)
    if kept is state and (is_known or len(state.late) >= MOST_LATE):
        return why
    return with_facts(replace(kept, late=tuple(dict.fromkeys((*state.late, call)))), _record_of(result, "late"))


def _kept(state: RunState, event: ToolReturned) -> RunState:
    """Keeps the answer to a request of the ended run. A child's spending is charged once."""
    ended, result = state.waiting, event.result
    if not isinstance(ended, Ended) or ended.held is None or event.malformed:
        return state
    held = ended.held
    pending = judge(replace(state, waiting=held), result, event.place)
    if isinstance(pending, Unmatched) or pending.answer or (result.error and result.error.error_class == "in_doubt"):
        return state
    answered = replace(pending, answer=result if result.status == "ok" else _as_error(result))
    can_reopen = ended.status is Status.ESCALATED  # and then charges the child's spending
    charged = state if can_reopen else limits.charge_child(state, pending, result)
    kept = with_requests(held, answered)
    assert isinstance(kept, Acting), "an unanswered request stays in flight"
    return replace(state, spent=charged.spent, waiting=replace(ended, held=kept, late=(*ended.late, pending.name)))


def _record_of(result: ToolResult, status: AnswerStatus) -> AttemptAnswered:
    return AttemptAnswered(
        step=result.step,
        task=result.task or "",
        round=result.round or 0,
        attempt=result.attempt or 1,
        tool=result.tool,
        status=status,
        error=result.error,
    )
