"""What a run leaves for people: its files by name, and artifacts as the journal names them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from agent_service.core.events import ToolReturned
from agent_service.core.facts import StepFinished, TaskFinished
from agent_service.run.journal import Record
from schemas.events import ARTIFACT_PATH, ToolOutput

FILES = ("context.md", "memory.md", "skills.md", "plan.md", "decisions.md", "trace.jsonl")

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedArtifact:
    """As entry `entry`, its newest mention, describes it. `size` is in bytes, `sha256` in hex."""

    path: str
    content_type: str | None
    size: int | None
    sha256: str | None
    step: int
    entry: int


def is_artifact_path(path: str) -> bool:
    return ARTIFACT_PATH.fullmatch(path) is not None


def named_artifacts(records: Iterable[Record]) -> tuple[NamedArtifact, ...]:
    named: dict[str, NamedArtifact] = {}
    for record in records:
        event = record.event
        if isinstance(event, ToolReturned) and any(record.all(kind) for kind in (StepFinished, TaskFinished)):
            for artifact in _artifacts(event, record.entry.seq):
                named[artifact.path] = artifact
    return tuple(named.values())


def _artifacts(event: ToolReturned, entry: int) -> list[NamedArtifact]:
    output, step = event.result.result, event.result.step
    if output is None:
        return []
    described = {str(d["path"]): d for d in _descriptions(output)}
    if output.artifact_path:
        described.setdefault(output.artifact_path, {"content_type": output.content_type})
    return [_artifact(path, about, step, entry) for path, about in described.items()]


def _descriptions(output: ToolOutput) -> list[dict[str, JsonValue]]:
    listed = (output.model_extra or {}).get("artifacts")
    if not isinstance(listed, list):
        return []
    return [about for about in listed if isinstance(about, dict) and isinstance(about.get("path"), str)]


def _artifact(path: str, about: dict[str, JsonValue], step: int, entry: int) -> NamedArtifact:
    content_type, size, sha256 = about.get("content_type"), about.get("size"), about.get("sha256")
    return NamedArtifact(
        path=path,
        content_type=content_type if isinstance(content_type, str) else None,
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        sha256=sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None,
        step=step,
        entry=entry,
    )
