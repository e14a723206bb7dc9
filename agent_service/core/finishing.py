"""A step is over: its result is kept, and the model reflects once nothing of its plan is in flight.

A write with an unknown outcome is in doubt: before a read of its tool is looked at, no write of that tool is made.
"""

import json
import re
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agent_service.core import acting, asking, grants, notes
from agent_service.core.facts import StepFinished
from agent_service.core.in_flight import without_step
from agent_service.core.phases import Action
from agent_service.core.state import Doubt, LastResult, RunState, StepRecord
from agent_service.core.waiting import Pending
from agent_service.sentences import Text, say
from schemas.events import ARTIFACT_PATH, Outcome, Signal, ToolError, ToolOutput, ToolResult
from schemas.values import replace

MAX_SUMMARY, MAX_SENT = 500, 16_000
OF_THE_CALL = frozenset({"job_id", "attempts", "last_error"})
"""What an executor tells of the call, beside the tool's result."""


def go_on(state: RunState) -> RunState:
    if state.open_steps:
        return state
    return asking.reflect(state)


def finish_step(
    state: RunState,
    pending: Pending,
    result: ToolResult,
    *,
    told: dict[str, JsonValue] | None = None,
    over_budget: bool = False,
) -> RunState:
    """`told`: what the model is told in the place of the result. `over_budget`: the step may gather no more."""
    state, output = grants.settled(state, pending, result), output_of(result) if told is None else told
    ended: Literal["ok", "error"] = "ok" if result.status == "ok" else "error"
    record = StepRecord(
        step=pending.step,
        tool=pending.action.tool,
        command=pending.action.command,
        attempt=pending.attempt,
        status="budget" if over_budget else ended,
        summary=summary_of_output(output),
        call=acting.name_of_call(pending.action),
        outcome=acting.digest([result.status == "ok", _comparable(output)]),
        seconds=max(0.0, (state.updated_at - pending.requested_at).total_seconds()),
        sent=_sent(state, pending.action) if result.status == "ok" else None,
    )
    finished = StepFinished(
        step=record.step,
        tool=record.tool,
        command=record.command,
        attempt=record.attempt,
        status=record.status,
        summary=record.summary,
        error_class="" if record.status == "ok" else str(output.get("class", "")),
    )
    others_gather = any(one.step != record.step for one in state.graphs)
    noted = notes.with_step(state, pending, record, output)
    return replace(
        noted,
        happened=(*noted.happened, finished),
        waits=0,
        waiting=without_step(state.waiting, record.step),
        evidence=state.evidence if others_gather else (),
        completed=(*state.completed, record),
        last_result=LastResult(step=record.step, status=record.status, output=output),
        doubts=after(state, record),
        artifacts=with_artifacts(state, result),
        summary=say("step_ended", step=record.step, tool=record.tool, status=record.status),
    )


def in_place_of(
    state: RunState,
    pending: Pending,
    *,
    error: ToolError | None = None,
    output: ToolOutput | None = None,
    at: datetime | None = None,
) -> ToolResult:
    """A result in the place of the executor's, at `at` or at the instant of the event."""
    return ToolResult(
        run_id=state.run_id,
        step=pending.step,
        tool=pending.action.tool,
        status="error" if error else "ok",
        result=output,
        error=error,
        completed_at=at or state.updated_at,
        attempt=pending.attempt,
        task=pending.task or None,
        round=pending.round or None,
    )


def _sent(state: RunState, action: Action) -> dict[str, JsonValue] | None:
    command = state.brief.command(action)
    if command is None or command.tier != "write":
        return None
    return {name: v[:MAX_SENT] if isinstance(v, str) else v for name, v in action.arguments.items()}


def _comparable(output: dict[str, JsonValue]) -> object:
    output = {key: value for key, value in output.items() if key not in OF_THE_CALL}
    artifacts = output.get("artifacts")
    if not isinstance(artifacts, list):
        return {key: value for key, value in output.items() if key != "artifact_path"}
    digests = [artifact.get("sha256") for artifact in artifacts if isinstance(artifact, dict)]
    return [digests, {key: output[key] for key in output.keys() - {"artifact_path", "artifacts", "excerpt"}}]


def output_of(result: ToolResult) -> dict[str, JsonValue]:
    if result.error is not None and result.status != "ok":
        return {"class": result.error.error_class, "message": result.error.message}
    return result.result.model_dump(mode="json", exclude_none=True) if result.result else {}


def summary_of_output(output: dict[str, JsonValue]) -> str:
    text = output.get("summary") or output.get("message") or output.get("excerpt") or json.dumps(output)
    return str(text)[:MAX_SUMMARY]


def artifacts_of(result: ToolResult) -> tuple[str, ...]:
    if result.result is None:
        return ()
    named = (result.result.model_extra or {}).get("artifacts")
    listed = [a.get("path") for a in named if isinstance(a, dict)] if isinstance(named, list) else []
    paths = (result.result.artifact_path, *listed)
    return tuple([path for path in paths if isinstance(path, str) and ARTIFACT_PATH.fullmatch(path)])


def with_taint(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    """Of a result that an executor brought: strangers wrote it, unless the tool declares what it brings trusted."""
    action = pending.action
    if state.tainted_by:
        return state
    skill, command = state.brief.skill(action.tool), state.brief.command(action)
    declared = (command and command.output) or (skill and skill.output)
    if declared == "trusted" and not is_marked(result):
        return state
    return replace(state, tainted_by=say("step_of", step=pending.step, tool=action.tool))


def is_marked(result: ToolResult) -> bool:
    output = (result.result.model_extra or {}).get("output") if result.result else None
    return result.untrusted or (isinstance(output, dict) and output.get("untrusted") is True)


def with_artifacts(state: RunState, result: ToolResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*state.artifacts, *artifacts_of(result))))


_CARRIED_OUT = r"(?:carried out|done|made|run|executed|sent|posted|written|saved|stored|created|deleted|booked|paid)\b"
_WHAT, _END = r"(?:it|(?:the|this|that) [\w-]+)", r"(?:[.:;!](?:\s.*)?)?"
_DID_NOT = re.compile(
    rf"(?:no\W+)?(?:it (?:did not|didn't) run|{_WHAT} (?:was not|wasn't|was never|has not been) {_CARRIED_OUT}){_END}",
    re.DOTALL,
)
_RAN = re.compile(rf"(?:yes\W+)?(?:it ran|it did run|{_WHAT} (?:was|has been) {_CARRIED_OUT}){_END}", re.DOTALL)
"""Whole sentences: an answer may begin with `it was not` and be about something else."""


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


def flaws_of_doubt(state: RunState, action: Action) -> tuple[Text, ...]:
    command = state.brief.command(action)
    if command is None or command.tier == "read":
        return ()
    return tuple(_flaw(state, doubt) for doubt in state.doubts if doubt.tool == action.tool)


def _flaw(state: RunState, doubt: Doubt) -> Text:
    skill = state.brief.skill(doubt.tool)
    reads = [command.name for command in skill.commands if command.tier == "read"] if skill else []
    return say("look_first" if reads else "ask_first", step=doubt.step, tool=doubt.tool, reads=" or ".join(reads))


def after(state: RunState, record: StepRecord) -> tuple[Doubt, ...]:
    if not state.doubts:
        return ()
    skill = state.brief.skill(record.tool)
    tiers = {command.name: command.tier for command in skill.commands} if skill else {}
    if record.status != "ok" or tiers.get(record.command) != "read":
        return state.doubts
    return tuple(doubt for doubt in state.doubts if doubt.tool != record.tool)


def after_a_word(state: RunState, signal: Signal) -> tuple[Doubt, ...]:
    return state.doubts if signal.kind != "answer" or outcome_of(signal) == "look" else ()
