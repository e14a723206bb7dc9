"""Results of tools: their summary, how an executor carried them out, and the artifacts that they name."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.acting import output_summary, result_output
from agent_service.core.continuing import continuation_summary
from agent_service.core.events import ToolReturned
from agent_service.core.facts import AttemptAnswered, RequestFinished
from agent_service.run.journal import JournalRecord
from schemas.continuation import ContinuationInvalid, read_continuation
from schemas.events import ARTIFACT_PATH, Execution, ToolOutput, ToolResult
from schemas.fields import Lenient

FILES = ("context.md", "memory.md", "skills.md", "plan.md", "decisions.md", "trace.jsonl")
"""Pages in a run's folder."""


def execution_of(result: ToolResult | None) -> Execution | None:
    if result is None:
        return None
    fields = result.error.model_dump() if result.error else (result.result and result.result.model_extra) or {}
    execution = Execution.model_validate(fields)
    return execution if execution.model_fields_set and execution != Execution() else None


def result_of(record: JournalRecord, step: int) -> ToolResult | None:
    """Result of the step in the entry; None if a timeout or a person answered."""
    event = record.event
    return event.result if isinstance(event, ToolReturned) and event.result.step == step else None


def summary_of_answer(answer: AttemptAnswered, result: ToolResult | None) -> str:
    """Empty for an error, and for a result that the run did not wait for."""
    if result is None or answer.error or answer.status == "refused":
        return ""
    if result.status == "continuation":
        with suppress(ContinuationInvalid):
            return continuation_summary(read_continuation(result.result))
    return output_summary(result_output(result))


class RecordedArtifact(BaseModel):
    """An artifact as its newest mention, in entry `entry`, describes it. `size` is in bytes, `sha256` in hex."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    path: str
    content_type: Annotated[str | None, Lenient] = None
    size: Annotated[int | None, Field(strict=True, ge=0), Lenient] = None
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$"), Lenient] = None
    step: int
    entry: int

    @property
    def is_kept(self) -> bool:
        return is_artifact_path(self.path)

    def is_brought_by(self, content: bytes | None) -> bool:
        return content is not None and self.sha256 in (None, hashlib.sha256(content).hexdigest())


def is_artifact_path(path: str) -> bool:
    return ARTIFACT_PATH.fullmatch(path) is not None


def recorded_artifacts(records: Iterable[JournalRecord]) -> tuple[RecordedArtifact, ...]:
    """Artifacts of a result that came after the end count once an answer takes the result up."""
    named, late = dict[str, RecordedArtifact](), dict[tuple[int, str], list[RecordedArtifact]]()
    for record in records:
        event, answer = record.event, record.first(AttemptAnswered)
        if isinstance(event, ToolReturned):
            about = {"step": event.result.step, "entry": record.entry.seq}
            found = [RecordedArtifact.model_validate(one | about) for one in _described(event.result.result)]
            if RequestFinished in record.kinds:
                named |= {one.path: one for one in found}
            elif answer and answer.status == "late":
                late[answer.step, answer.id] = found
        elif late:
            for over in record.all(RequestFinished):
                named |= {one.path: one for one in late.pop((over.step, over.id), ())}
    return tuple(named.values())


def kept_artifacts(records: Iterable[JournalRecord]) -> dict[str, RecordedArtifact]:
    """Artifacts by path, without those of an illegal name."""
    return {one.path: one for one in recorded_artifacts(records) if one.is_kept}


def _described(output: ToolOutput | None) -> list[dict[str, Any]]:
    listed = (output.model_extra or {}).get("artifacts") if output else None
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    found = [one for one in found if isinstance(one.get("path"), str)]
    if output and output.artifact_path and output.artifact_path not in [one["path"] for one in found]:
        found.append({"path": output.artifact_path, "content_type": output.content_type})
    return found
