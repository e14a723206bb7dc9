"""What a run waits for, in words."""

from datetime import datetime

from agent_service.core.phases import Framing, Plan
from agent_service.core.tools.attempts import Flight
from agent_service.core.waiting import (
    Acting,
    Approval,
    Asking,
    NeedsPerson,
    Question,
    Sleeping,
    Stop,
    Thinking,
    Waiting,
)
from agent_service.telling.plain import instant
from agent_service.telling.sayings import attempt_of, call_of


def rests_for(waiting: Waiting) -> str:
    """Such as `a person's answer: Which of the two?`; empty for a run that has not begun, or has ended."""
    match waiting:
        case Thinking(asking=asking, retry_at=datetime() as at, still_since=datetime()):
            return f"{instant(at)}, or more money: what may be spent in a day is spent before {question_of(asking)}"
        case Thinking(asking=asking, retry_at=datetime() as at):
            return f"{instant(at)}, when {question_of(asking)} is made again"
        case Thinking(asking=asking):
            return f"the reply to {question_of(asking)}"
        case Acting(flights=(Flight(pending=pending, retry_at=datetime() as at),)):
            return f"{instant(at)}, when {attempt_of(pending)} is sent"
        case Acting(pendings=(pending,)):
            return f"the result of {attempt_of(pending)}"
        case Acting(pendings=pendings):
            return f"the results of {', '.join(map(attempt_of, pendings))}"
        case _:
            return _of_rest(waiting)


def _of_rest(waiting: Waiting) -> str:
    match waiting:
        case Sleeping(until=at, why=why):
            return f"{instant(at)}: {why}"
        case NeedsPerson(ask=ask):
            return _of_people(ask)
    return ""


def _of_people(ask: Approval | Question | Stop) -> str:
    match ask:
        case Approval(proposal=proposal, reason=reason):
            return f"a person's approval of {proposed(proposal)}: {reason}"
        case Question(ask=question):
            return f"a person's answer: {question.question}"
        case Stop(reason=reason):
            return f"a person: {reason}"


def proposed(proposal: Plan | Framing) -> str:
    return call_of(proposal.action) if isinstance(proposal, Plan) else "a new framing"


def question_of(asking: Asking) -> str:
    return f"model call {asking.call} ({asking.phase})"
