"""Writes in doubt: their tool writes nothing until the model has read from it, or a person has ruled."""

import re

from agent_service.core.phases import Action
from agent_service.core.state import Doubt, RunState, StepRecord, replace
from agent_service.core.tools import acting
from agent_service.core.tools.attempts import Pending
from schemas.events import Outcome, Signal

_CARRIED_OUT = r"(?:carried out|done|made|run|executed|sent|posted|written|saved|stored|created|deleted|booked|paid)\b"
_WHAT, _END = r"(?:it|(?:the|this|that) [\w-]+)", r"(?:[.:;!](?:\s.*)?)?"
_DID_NOT = re.compile(
    rf"(?:no\W+)?(?:it (?:did not|didn't) run|{_WHAT} (?:was not|wasn't|was never|has not been) {_CARRIED_OUT}){_END}",
    re.DOTALL,
)
_RAN = re.compile(rf"(?:yes\W+)?(?:it ran|it did run|{_WHAT} (?:was|has been) {_CARRIED_OUT}){_END}", re.DOTALL)
"""Whole sentences: an answer may begin with `it was not` and be about something else."""


_ASK_FIRST = "ask a person first, with the choices `It ran` and `It did not run`"


def outcome_of(signal: Signal) -> Outcome:
    if signal.outcome is not None or signal.untrusted:
        return signal.outcome or "look"
    words = (signal.message or "").strip().casefold().replace("\u2019", "'")
    if _DID_NOT.fullmatch(words):
        return "did_not_run"
    return "ran" if _RAN.fullmatch(words) else "look"


def of(pending: Pending) -> Doubt:
    return Doubt(step=pending.step, tool=pending.action.tool, call=acting.name_of_call(pending.action))


def with_doubt(state: RunState, pending: Pending) -> RunState:
    new = of(pending)
    return state if new in state.doubts else replace(state, doubts=(*state.doubts, new))


def flaws_of(state: RunState, action: Action) -> tuple[str, ...]:
    command = state.brief.command(action)
    if command is None or command.tier == "read":
        return ()
    return tuple(_flaw(state, doubt) for doubt in state.doubts if doubt.tool == action.tool)


def _flaw(state: RunState, doubt: Doubt) -> str:
    skill = state.brief.skill(doubt.tool)
    reads = [command.name for command in skill.commands if command.tier == "read"] if skill else []
    look = f"look first, with {' or '.join(reads)} of {doubt.tool}" if reads else _ASK_FIRST
    return f"whether step {doubt.step} ({doubt.tool}) was carried out is not known: {look}"


def after(state: RunState, record: StepRecord) -> tuple[Doubt, ...]:
    skill = state.brief.skill(record.tool)
    tiers = {command.name: command.tier for command in skill.commands} if skill else {}
    if record.status != "ok" or tiers.get(record.command) != "read":
        return state.doubts
    return tuple(doubt for doubt in state.doubts if doubt.tool != record.tool)


def after_a_word(state: RunState, signal: Signal) -> tuple[Doubt, ...]:
    return state.doubts if signal.kind != "answer" or outcome_of(signal) == "look" else ()
