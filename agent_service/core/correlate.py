"""Is this tool result the one the run waits for? RFC-103's resume validation, as a table judged from the top.

run not known                                     the caller's business: there is no state to judge by
run final                                         LATE       recorded, once
step below the pending one, or finished           STALE      ignored
step above the pending one, or nothing pending    VIOLATION  escalates
tool is not the pending one                       VIOLATION  escalates
attempt older than the pending one                STALE      ignored
attempt newer than the last that was sent         VIOLATION  escalates
otherwise                                         MATCH
"""

from dataclasses import dataclass
from enum import Enum, auto

from agent_service.core.state import Pending, RunState
from schemas.events import ToolResult


class Relation(Enum):
    """How a result relates to what the run waits for."""

    MATCH = auto()
    STALE = auto()
    LATE = auto()
    VIOLATION = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    relation: Relation
    reason: str


def judge(state: RunState, result: ToolResult) -> Judgement:
    """Judge `result` in the order of the table above."""
    pending, which = state.pending, f"step {result.step} attempt {result.attempt}"
    if state.final:
        return Judgement(Relation.LATE, f"result of {which} came after the run ended ({state.status})")
    if state.has_finished(result.step) or (pending and result.step < pending.step):
        return Judgement(Relation.STALE, f"step {result.step} is finished already")
    if pending is None:
        return Judgement(Relation.VIOLATION, f"result of {which}, but nothing is pending")
    if result.step > pending.step:
        return Judgement(Relation.VIOLATION, f"result of {which} is from the future: step {pending.step} is pending")
    if result.tool != pending.action.tool:
        return Judgement(
            Relation.VIOLATION,
            f"result of {which} is from tool {result.tool}, but {pending.action.tool} is pending",
        )
    return _judge_attempt(pending, result)


def _judge_attempt(pending: Pending, result: ToolResult) -> Judgement:
    if result.attempt < pending.attempt:
        return Judgement(Relation.STALE, f"attempt {result.attempt} was given up: it is attempt {pending.attempt} now")
    if result.attempt > pending.attempt or pending.retry_at is not None:
        return Judgement(Relation.VIOLATION, f"attempt {result.attempt} of step {pending.step} was never sent")
    return Judgement(Relation.MATCH, "")
