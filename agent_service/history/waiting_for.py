"""What a run waits for, in words: every view of a run reads them here."""

from dataclasses import asdict
from datetime import datetime

from agent_service.core.attempts import Pending
from agent_service.core.state import RunState
from agent_service.core.waiting import Acting, Approval, NeedsPerson, Question, Sleeping, Stop, Thinking, Waiting
from agent_service.history import words
from agent_service.history.plain import instant
from agent_service.run.lines import WaitsFor, waits_for
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason(WaitsFor):
    """`text` completes `it waits for …`."""

    text: str


def waiting_for(run: RunState) -> WaitReason | None:
    """None for a run that has not begun, or has ended."""
    waits = waits_for(run)
    return WaitReason(**asdict(waits), text=text_of(run.waiting)) if waits else None


def text_of(waiting: Waiting) -> str:
    """Such as `a person's answer: Which of the two?`; empty for a run that has not begun, or has ended."""
    match waiting:
        case Thinking():
            return _of_thinking(waiting)
        case Acting(pendings=(Pending(retry_at=datetime() as at) as pending,)):
            return f"{instant(at)}, when {words.attempt_of(pending)} is sent"
        case Acting(pendings=(pending,)):
            return f"the result of {words.attempt_of(pending)}"
        case Acting(pendings=pendings):
            return f"the results of {', '.join(map(words.attempt_of, pendings))}"
        case Sleeping(until=at, why=why):
            return f"{instant(at)}: {why}"
        case NeedsPerson(ask=ask):
            return _of_people(ask)
    return ""


def _of_thinking(waiting: Thinking) -> str:
    asking, at = waiting.asking, waiting.retry_at
    call = f"model call {asking.call} ({asking.phase})"
    if at is None:
        return f"the reply to {call}"
    if waiting.still_since:
        return f"{instant(at)}, or more money: what may be spent in a day is spent before {call}"
    return f"{instant(at)}, when {call} is made again"


def _of_people(ask: Approval | Question | Stop) -> str:
    match ask:
        case Approval(proposal=proposal, reason=reason):
            return f"a person's approval of {words.proposed(proposal)}: {reason}"
        case Question(ask=question):
            return f"a person's answer: {question.question}"
        case Stop(reason=reason):
            return f"a person: {reason}"


def executor_of(run: RunState, pending: Pending) -> str | None:
    skill = run.brief.skill(pending.action.tool)
    return skill.executor if skill else None
