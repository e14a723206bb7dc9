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
"""

from dataclasses import dataclass
from enum import Enum, auto

from agent_service.core.flights import flight_of, flights
from agent_service.core.state import RunState
from agent_service.core.waiting import Flight, Pending
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


def judge(state: RunState, result: ToolResult, place: str = "") -> Judgement:
    """Judge `result` in the order of the table above. `place` names the message it came with."""
    pendings = tuple(flight.pending for flight in flights(state.waiting))
    which = f"step {result.step} attempt {result.attempt or 'not named'}"
    if state.final:
        return Judgement(Relation.LATE, f"result of {which} came after the run ended ({state.status})")
    if state.has_finished(result.step) or (pendings and result.step < pendings[0].step):
        return Judgement(Relation.STALE, f"step {result.step} is finished already")
    if not pendings and state.reopened and result.step <= state.step:  # escalated by a version that kept no open step
        return Judgement(Relation.STALE, f"step {result.step} was given up when the run was handed to a person")
    if not pendings:
        return Judgement(Relation.VIOLATION, f"result of {which}, but nothing is pending")
    flight = flight_of(state.waiting, result.step)
    if flight is None:
        newest = pendings[-1].step
        return Judgement(Relation.VIOLATION, f"result of {which} is from the future: step {newest} is pending")
    return _judge_flight(flight, result, which, place)


def _judge_flight(flight: Flight, result: ToolResult, which: str, place: str) -> Judgement:
    pending, sent = flight.pending, flight.retry_at is None
    if result.tool != pending.action.tool:
        return Judgement(
            Relation.VIOLATION,
            f"result of {which} is from tool {result.tool}, but {pending.action.tool} is pending",
        )
    if result.attempt is None:
        return _judge_unnamed(pending, place, sent=sent)
    return _judge_attempt(pending, result.attempt, sent=sent)


def _judge_unnamed(pending: Pending, place: str, *, sent: bool) -> Judgement:
    if not sent:
        return Judgement(Relation.STALE, f"attempt {pending.attempt} of step {pending.step} is not sent yet")
    if place and place in pending.heard:
        return Judgement(Relation.STALE, f"the same message answered an earlier attempt of step {pending.step}")
    return Judgement(Relation.MATCH, "")


def _judge_attempt(pending: Pending, attempt: int, *, sent: bool) -> Judgement:
    if attempt < pending.attempt:
        return Judgement(Relation.STALE, f"attempt {attempt} was given up: it is attempt {pending.attempt} now")
    if attempt > pending.attempt or not sent:
        return Judgement(Relation.VIOLATION, f"attempt {attempt} of step {pending.step} was never sent")
    return Judgement(Relation.MATCH, "")
