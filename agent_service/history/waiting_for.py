"""What a run waits for, in words: every view of a run reads them here."""

from dataclasses import asdict
from datetime import datetime

from agent_service.core.state import RunState
from agent_service.core.waiting import Acting, NeedsPerson, Pending, Sleeping, Thinking, Waiting
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
    return WaitReason(**asdict(waits), text=_text(run.waiting)) if waits else None


def _text(waiting: Waiting) -> str:
    match waiting:
        case Thinking():
            return _of_thinking(waiting)
        case Acting(pendings=(Pending(retry_at=datetime() as at) as pending,)):
            return f"{instant(at)}, when {words.attempt_of(pending)} is sent"
        case Acting(pendings=pendings):
            results = "the result" if len(pendings) == 1 else "the results"
            return f"{results} of {', '.join(map(words.attempt_of, pendings))}"
        case Sleeping(until=at, why=why):
            return f"{instant(at)}: {why}"
        case NeedsPerson(ask=ask):
            return str(words.said(ask)).removeprefix(words.PAUSES)
    return ""


def _of_thinking(waiting: Thinking) -> str:
    call, at = f"model call {waiting.asking.call} ({waiting.asking.phase})", waiting.retry_at
    if at is None:
        return f"the reply to {call}"
    if waiting.still_since:
        return f"{instant(at)}, or more money: what may be spent in a day is spent before {call}"
    return f"{instant(at)}, when {call} is made again"


def executor_of(run: RunState, pending: Pending) -> str | None:
    skill = run.brief.skill(pending.action.tool)
    return skill.executor if skill else None
