"""What a run waits for, in words."""

from datetime import datetime

from agent_service.core.phases import Framing, Plan
from agent_service.core.waiting import (
    Asking,
    Deciding,
    Ended,
    ForAnswer,
    ForApproval,
    ForEvidence,
    ForModel,
    ForPerson,
    ForReads,
    ForTime,
    ForTool,
    ModelRetry,
    Planned,
    Queued,
    ToolRetry,
    Waiting,
)
from agent_service.telling.plain import instant
from agent_service.telling.sayings import attempt_of, call_of


def rests_for(waiting: Waiting) -> str:
    """Such as `a person's answer: Which of the two?`; empty for a run that has not begun, or has ended."""
    match waiting:
        case ForModel(asking=asking):
            return f"the reply to {question_of(asking)}"
        case ModelRetry(asking=asking, retry_at=at, still_since=datetime()):
            return f"{instant(at)}, or more money: what may be spent in a day is spent before {question_of(asking)}"
        case ModelRetry(asking=asking, retry_at=at):
            return f"{instant(at)}, when {question_of(asking)} is made again"
        case ForTool(pending=pending):
            return f"the result of {attempt_of(pending)}"
        case ToolRetry(pending=pending, retry_at=at):
            return f"{instant(at)}, when {attempt_of(pending)} is sent"
        case ForReads(flights=flights) | ForEvidence(flights=flights):
            return f"the results of {', '.join(attempt_of(flight.pending) for flight in flights)}"
        case ForTime(until=at, why=why):
            return f"{instant(at)}: {why}"
        case other:
            return _of_people(other)


def _of_people(waiting: ForApproval | ForAnswer | ForPerson | Queued | Planned | Ended | Deciding) -> str:
    match waiting:
        case ForApproval(proposal=proposal, reason=reason):
            return f"a person's approval of {proposed(proposal)}: {reason}"
        case ForAnswer(ask=ask):
            return f"a person's answer: {ask.question}"
        case ForPerson(stop=stop):
            return f"a person: {stop.reason}"
        case Queued() | Planned() | Ended() | Deciding():
            return ""


def proposed(proposal: Plan | Framing) -> str:
    return call_of(proposal.action) if isinstance(proposal, Plan) else "a new framing"


def question_of(asking: Asking) -> str:
    return f"model call {asking.call} ({asking.phase})"
