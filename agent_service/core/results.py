"""What a tool's result means to a run: its step is finished, tried again, or handed to a person.

Which result it is, `correlate` says. A result that does not answer the pending attempt never finishes a step. Of
several reads each is judged and tried again by itself. The model reflects when the last one is finished, and is told of
those whose attempts are all used with what the others brought.
"""

import json
from datetime import datetime

from pydantic import JsonValue

from agent_service.core import acting, asking, doubting, endings, notes
from agent_service.core.correlate import Relation, judge
from agent_service.core.effects import Transition
from agent_service.core.events import TimerFired, ToolReturned
from agent_service.core.flights import due_first, flight_of, landed, with_flight
from agent_service.core.replacing import replace
from agent_service.core.state import LastResult, RunState, StepRecord
from agent_service.core.waiting import Ended, ForReads, Pending, under_way
from schemas.events import ARTIFACT_PATH, ToolError, ToolResult

MAX_SUMMARY = 500
_IN_DOUBT = {"error_class": "in_doubt", "retryable": False}
OF_THE_CALL = frozenset({"job_id", "attempts", "last_error"})
"""What an executor tells of how it carried out a call, beside what the tool brought."""
HANDED_TO_A_PERSON = frozenset({"in_doubt", "configuration", "not_allowed", "storage_full"})
"""Error classes that neither another attempt nor another plan can mend."""


def on_result(state: RunState, event: ToolReturned) -> Transition | str:
    """Take up a result, or say why it is ignored."""
    result, judgement = event.result, judge(state, event.result, event.place)
    if event.malformed and judgement.relation is not Relation.MATCH:
        return judgement.reason
    match judgement.relation:
        case Relation.STALE:
            return judgement.reason
        case Relation.LATE:
            return _on_late(state, event, judgement.reason)
        case Relation.VIOLATION:
            return endings.escalate(state, "protocol_violation", judgement.reason, at=event.at)
        case Relation.MATCH if result.status == "ok":
            return _finished(state, result, at=event.at)
        case Relation.MATCH:
            error = _malformed(state, result) if event.malformed else _as_error(result)
            return _on_error(_heard(state, result.step, event.place), error, at=event.at)


def on_due(state: RunState, event: TimerFired) -> Transition:
    """The instant of an attempt has come: it is sent, or no answer came in time."""
    flight = due_first(state.waiting)
    if flight.retry_at is not None:
        return acting.send(state, flight.pending, at=event.at)
    return _on_silence(state, flight.pending, at=event.at)


def _on_silence(state: RunState, pending: Pending, *, at: datetime) -> Transition:
    """The outcome is unknown, which only a repeatable command can bear."""
    repeatable = acting.is_repeatable(state, pending)
    error = ToolError(
        error_class="timeout" if repeatable else "in_doubt",
        message=f"no result by {pending.deadline_at:%Y-%m-%dT%H:%M:%SZ}; whether the tool ran is not known",
        retryable=repeatable,
    )
    result = ToolResult(
        run_id=state.run_id,
        step=pending.step,
        tool=pending.action.tool,
        status="error",
        error=error,
        completed_at=at,
        attempt=pending.attempt,
    )
    return _on_error(state, result, at=at)


def _pending(state: RunState, result: ToolResult) -> Pending:
    """The attempt that `result` answers."""
    flight = flight_of(state.waiting, result.step)
    assert flight is not None, "the result was matched with what is under way"
    return flight.pending


def _heard(state: RunState, step: int, place: str) -> RunState:
    """Remember a message that did not name its attempt: delivered again it would answer the attempt after it."""
    flight = flight_of(state.waiting, step)
    if flight is None or not place:
        return state
    pending = replace(flight.pending, heard=(*flight.pending.heard, place))
    return replace(state, waiting=with_flight(state.waiting, replace(flight, pending=pending)))


def _malformed(state: RunState, result: ToolResult) -> ToolResult:
    """The tool ran, and what it brought cannot be read: only a repeatable command can bear that."""
    if result.error is None or acting.is_repeatable(state, _pending(state, result)):
        return result
    return result.model_copy(update={"error": result.error.model_copy(update=_IN_DOUBT)})


def _on_late(state: RunState, event: ToolReturned, why: str) -> Transition | str:
    which, kept = (event.result.step, event.result.attempt or 1), _kept(state, event)
    if kept is state and (which in state.late or state.has_finished(event.result.step)):
        return why
    late = tuple(dict.fromkeys((*state.late, which)))
    return Transition(state=replace(kept, late=late, updated_at=event.at))


def _kept(state: RunState, event: ToolReturned) -> RunState:
    """The state with the result of an attempt that was open at the end, for an answer that reopens the run."""
    ended = state.waiting
    if not isinstance(ended, Ended) or ended.held is None or event.malformed:
        return state
    judged = judge(replace(state, waiting=ended.held), event.result, event.place)
    if judged.relation is not Relation.MATCH or known(ended, event.result.step):
        return state
    result = event.result if event.result.status == "ok" else _as_error(event.result)
    return replace(state, waiting=replace(ended, came=(*ended.came, result)))


def known(ended: Ended, step: int) -> ToolResult | None:
    """What is known to have come of a step that was open at the end."""
    told = (r for r in ended.came if r.step == step and not (r.error and r.error.error_class == "in_doubt"))
    return next(told, None)


def _as_error(result: ToolResult) -> ToolResult:
    """A result that is not ok, as an error. A tool's wish for more evidence is told to the model as such."""
    if result.status == "error":
        return result if result.error else result.model_copy(update={"error": ToolError(message="no reason given")})
    error = ToolError(error_class="continuation", message="the tool asks for more evidence before it can answer")
    return result.model_copy(update={"error": error})


def _on_error(state: RunState, result: ToolResult, *, at: datetime) -> Transition:
    pending, error = _pending(state, result), result.error
    assert error is not None, "an error result carries its error"
    again = acting.retry(state, pending, error, at=at)
    if again:
        return again
    job = f", job {error.job_id}" if error.job_id else ""
    what = f"step {pending.step}: {pending.action.tool} failed ({error.error_class}{job}): {error.message}"
    if error.error_class in HANDED_TO_A_PERSON:
        return endings.escalate(state, error.error_class, what, at=at, came=(result,))
    alone = not isinstance(under_way(state.waiting), ForReads)
    if alone and acting.could_be_retried(state, pending, error):
        what = f"{what} (attempt {pending.attempt}, the last)"
        return endings.escalate(state, _spent_attempts(state), what, at=at, came=(result,))
    return _finished(state, result, at=at)


def _finished(state: RunState, result: ToolResult, *, at: datetime) -> Transition:
    """The step is over: the model reflects on it, unless others of its plan are still under way."""
    finished = finish_step(state, result, at=at)
    if len(state.pendings) > 1:
        return Transition(state=finished, effects=(endings.progress(finished, "act", finished.summary),))
    return asking.reflect(finished, at=at)


def _spent_attempts(state: RunState) -> str:
    of_run = state.attempts >= state.brief.limits.max_attempts_of_run
    return "budget_attempts" if of_run else "tool_exhausted"


def finish_step(state: RunState, result: ToolResult, *, at: datetime) -> RunState:
    """The state with the pending step completed and its result kept for the next reflection."""
    pending = _pending(state, result)
    output = _output(result)
    record = StepRecord(
        step=pending.step,
        tool=pending.action.tool,
        command=pending.action.command,
        attempt=pending.attempt,
        status="ok" if result.status == "ok" else "error",
        summary=_summary(output),
        call=acting.name_of_call(pending.action),
        outcome=acting.digest([result.status == "ok", _comparable(output)]),
        seconds=max(0.0, (at - pending.requested_at).total_seconds()),
    )
    skill = state.brief.skill(pending.action.tool)
    brings_strangers = result.untrusted or (skill and skill.output == "untrusted")
    strange = f"step {record.step} ({record.tool})" if brings_strangers else ""
    return replace(
        notes.with_step(state, pending, record, output),
        waits=0,
        strangers=state.strangers or strange,
        waiting=landed(state.waiting, record.step),
        completed=(*state.completed, record),
        last_result=LastResult(step=record.step, status=record.status, output=output),
        doubts=doubting.after(state, record),
        artifacts=tuple(dict.fromkeys((*state.artifacts, *_artifacts(result)))),
        summary=f"step {record.step}: {record.tool} {record.status}",
        updated_at=at,
    )


def _comparable(output: dict[str, JsonValue]) -> object:
    """A result without what differs from step to step though nothing else does: names of artifacts, and of the call."""
    output = {key: value for key, value in output.items() if key not in OF_THE_CALL}
    artifacts = output.get("artifacts")
    if not isinstance(artifacts, list):
        return {key: value for key, value in output.items() if key != "artifact_path"}
    digests = [artifact.get("sha256") for artifact in artifacts if isinstance(artifact, dict)]
    return [digests, {key: output[key] for key in output.keys() - {"artifact_path", "artifacts", "excerpt"}}]


def summary_of(result: ToolResult) -> str:
    """What the tool said, in the words that are kept of a step."""
    return _summary(_output(result))


def _output(result: ToolResult) -> dict[str, JsonValue]:
    if result.error is not None and result.status != "ok":
        return {"class": result.error.error_class, "message": result.error.message}
    return result.result.model_dump(mode="json", exclude_none=True) if result.result else {}


def _summary(output: dict[str, JsonValue]) -> str:
    text = output.get("summary") or output.get("message") or output.get("excerpt") or json.dumps(output)
    return str(text)[:MAX_SUMMARY]


def _artifacts(result: ToolResult) -> tuple[str, ...]:
    """The paths that a result names, but none that leaves the run's artifacts."""
    if result.result is None:
        return ()
    named = (result.result.model_extra or {}).get("artifacts")
    listed = [a.get("path") for a in named if isinstance(a, dict)] if isinstance(named, list) else []
    paths = (result.result.artifact_path, *listed)
    return tuple(path for path in paths if isinstance(path, str) and ARTIFACT_PATH.fullmatch(path))
