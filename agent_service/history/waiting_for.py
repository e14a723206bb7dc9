"""What a run waits for, and what it asks of a person, in words: every view of a run reads them here."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from agent_service.core.attempts import Pending
from agent_service.core.state import RunState
from agent_service.core.waiting import Acting, Approval, NeedsPerson, Question, Sleeping, Stop, Thinking, Waiting
from agent_service.history import words
from agent_service.history.plain import instant
from agent_service.run.lines import WaitsFor, waits_for


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


def asked(asks: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Names and texts in reading order; a text without a name goes on with the one before. `asks` is as the API shows
    it. Budgets are told by their reason alone.
    """
    if asks is None:
        return
    match asks["kind"]:
        case "approval" | "in_doubt":
            yield from _call(asks)
        case "question":
            yield "asks", asks["question"]
            yield from (("choice", choice) for choice in asks["choices"])
            told = (("tried", asks["tried"]), ("changes", asks["would_change"]), ("because", asks["reason"]))
            yield from ((name, text) for name, text in told if text)
    if asks["expires_at"]:
        yield "until", f"{asks['expires_at'][:10]} {asks['expires_at'][11:19]} UTC"


def _call(asks: dict[str, Any]) -> Iterator[tuple[str, str]]:
    task = f", {asks['task']} of round {asks['round']}" if asks.get("task") else ""
    call = f"step {asks['step']}{task}: {asks['tool']} {asks['command']}"
    yield "approve" if asks["kind"] == "approval" else "in doubt", call if asks["tool"] else "another goal than was set"
    for name, value in (asks["arguments"] or {}).items():
        yield "", f"{_exactly(name)}: {_exactly(value)}"
    yield "because", asks["reason"]
    if asks["arguments_hash"]:
        yield "hash", asks["arguments_hash"]


def _exactly(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
