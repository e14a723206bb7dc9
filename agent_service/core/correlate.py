"""Is this tool result the one the run waits for? RFC-103's resume validation, as a table judged from the top.

run not known                                     the caller's business: there is no state to judge by
run final                                         LATE       recorded, once
step below the pending one, or finished           STALE      ignored
step taken, nothing pending, run was reopened     STALE      ignored
step above the pending one, or nothing pending    VIOLATION  escalates
tool is not the pending one                       VIOLATION  escalates
attempt older than the pending one                STALE      ignored
attempt newer than the last that was sent         VIOLATION  escalates
no attempt named, and none is out, or the same    STALE      ignored
  message answered an earlier one
otherwise                                         MATCH

A result that does not name its attempt (RFC-103's has none) answers the pending one. While several reads are pending,
each row is of the one of that step; below the pending one is what is below them all, above it what is above them all.

While a step gathers what its tool asked for, its own request is answered, and the rows are of its sub-requests: a
result names the one that it answers. One that names none answers the only one of its tool, unless its message answered
another before.
"""

from enum import Enum, auto

from agent_service.core.brief import Brief
from agent_service.core.events import Proof
from agent_service.core.in_flight import graph_of, pending_of
from agent_service.core.state import RunState
from agent_service.core.waiting import AGAIN, Pending, TaskGraph
from agent_service.sentences import Text, say
from schemas.events import ToolResult
from schemas.values import dataclass


class Relation(Enum):
    MATCH = auto()
    STALE = auto()
    LATE = auto()
    VIOLATION = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    """`pending`: what it answers, of a result that matches."""

    relation: Relation
    reason: Text
    pending: Pending | None = None


def judge(state: RunState, result: ToolResult, place: str = "") -> Judgement:
    """`place` names the message it came with."""
    steps = state.open_steps
    which = say("which", step=result.step, attempt=result.attempt)
    if state.final:
        return Judgement(Relation.LATE, say("came_late", which=which, status=state.status))
    if state.has_finished(result.step) or (steps and result.step < steps[0]):
        return Judgement(Relation.STALE, say("step_finished", step=result.step))
    if not steps and state.reopened and result.step <= state.step:  # escalated by a version that kept no open step
        return Judgement(Relation.STALE, say("step_given_up", step=result.step))
    if not steps:
        return Judgement(Relation.VIOLATION, say("nothing_pending", which=which))
    if graph := graph_of(state.waiting, result.step):
        return _judge_sub_request(state, graph, result, which, place)
    pending = pending_of(state.waiting, result.step)
    if pending is None:
        return Judgement(Relation.VIOLATION, say("from_the_future", which=which, pending=steps[-1]))
    if result.task:
        return Judgement(Relation.VIOLATION, say("task_never_asked", which=which, task=result.task))
    return _judge_pending(pending, result, which, place)


def _judge_sub_request(state: RunState, graph: TaskGraph, result: ToolResult, which: Text, place: str) -> Judgement:
    if not result.task:
        return _judge_nameless(state, graph, result, place)
    if result.round is None and place in graph.nameless:
        return Judgement(Relation.STALE, say("message_answered_request", step=graph.step))
    asked_in = result.round or next((one.round for one in _of_step(state, graph, result.task)), 0)
    pending = pending_of(state.waiting, graph.step, result.task, asked_in)
    if pending:
        return _judge_pending(pending, result, say("which_task", which=which, task=result.task), place)
    if not _was_ever_sent(state, graph, result.task, asked_in):
        return Judgement(Relation.VIOLATION, say("task_never_sent", which=which, task=result.task, round=asked_in))
    return Judgement(Relation.STALE, say("task_answered", task=result.task, step=graph.step))


def _was_ever_sent(state: RunState, graph: TaskGraph, name: str, asked_in: int) -> bool:
    rounds = (asked_in,) if asked_in else range(1, graph.round + 2)
    under_way = any(one.task == name for one in state.pendings if one.step == graph.step)
    return (not asked_in and under_way) or any(_was_sent(state, graph, name, one) for one in rounds)


def _was_sent(state: RunState, graph: TaskGraph, name: str, asked_in: int) -> bool:
    if graph.stopped:
        return asked_in <= graph.round + 1
    gathers = [task for task in graph.tasks if task.asks]
    if any(name == task.id and asked_in == task.round for task in gathers):
        return True
    if any(name == task.again and 1 < asked_in <= task.asks for task in gathers):
        return True
    known = {one.name for one in state.evidence}
    task_id, _, last = name.rpartition(".")
    finished = last == AGAIN and any(done == task_id for _, done, _ in known)
    return (graph.step, name, asked_in) in known or (finished and 1 < asked_in <= graph.round + 1)


def _judge_nameless(state: RunState, graph: TaskGraph, result: ToolResult, place: str) -> Judgement:
    if not place or place in graph.nameless:
        return Judgement(Relation.STALE, say("request_answered", step=graph.step))
    asked = [pending for pending in _of_step(state, graph) if pending.action.tool == result.tool]
    if len(asked) != 1:
        return Judgement(Relation.STALE, say("answers_which", count=len(asked), tool=result.tool))
    return _judge_pending(asked[0], result, say("which_step", step=result.step), place)


def _of_step(state: RunState, graph: TaskGraph, task: str = "") -> list[Pending]:
    of_step = (one for one in state.pendings if one.step == graph.step and one.grant is None)
    return [one for one in of_step if task in ("", one.task)]


def _judge_pending(pending: Pending, result: ToolResult, which: Text, place: str) -> Judgement:
    if result.tool != pending.action.tool:
        return Judgement(
            Relation.VIOLATION, say("other_tool", which=which, tool=result.tool, pending=pending.action.tool)
        )
    if result.attempt is None:
        return _judge_unnamed(pending, place)
    return _judge_attempt(pending, result.attempt)


def _judge_unnamed(pending: Pending, place: str) -> Judgement:
    if pending.retry_at:
        return Judgement(Relation.STALE, say("attempt_not_sent", attempt=pending.attempt, step=pending.step))
    if place and place in pending.nameless:
        return Judgement(Relation.STALE, say("message_answered_attempt", step=pending.step))
    return Judgement(Relation.MATCH, "", pending)


def _judge_attempt(pending: Pending, attempt: int) -> Judgement:
    if attempt < pending.attempt:
        return Judgement(Relation.STALE, say("attempt_given_up", attempt=attempt, now=pending.attempt))
    if attempt > pending.attempt or pending.retry_at:
        return Judgement(Relation.VIOLATION, say("attempt_never_sent", attempt=attempt, step=pending.step))
    return Judgement(Relation.MATCH, "", pending)


def unbelieved(state: RunState, result: ToolResult, proof: Proof | None, relation: Relation) -> Text:
    if proof in (None, "named") or (proof == "another" and relation is Relation.VIOLATION):
        return ""
    if proof == "none" and _may_come_without(state, result.tool, relation):
        return ""
    name = "capability_of_another" if proof == "another" else "no_capability"
    return say(name, tool=result.tool, step=result.step)


def _may_come_without(state: RunState, tool: str, relation: Relation) -> bool:
    brief = state.brief
    if brief.skill(tool) is None:
        return bool(brief.skills) and not any(skill.echoes_capability for skill in brief.skills)
    if relation is Relation.VIOLATION:
        return not any(_echoes(brief, asked) for asked in (tool, *_asked(state)))
    return not _echoes(brief, tool)


def _echoes(brief: Brief, tool: str) -> bool:
    skill = brief.skill(tool)
    return skill is not None and skill.echoes_capability


def _asked(state: RunState) -> list[str]:
    asked = [pending.action.tool for pending in state.pendings]
    return [*asked, *(graph.first.action.tool for graph in state.graphs)]
