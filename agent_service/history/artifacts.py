"""What a run leaves for people: its files by name, and artifacts as the journal names them."""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.events import ToolReturned
from agent_service.core.facts import Finished
from agent_service.run.journal import Record
from schemas.events import ARTIFACT_PATH, ToolOutput
from schemas.fields import Told

FILES = ("context.md", "memory.md", "skills.md", "plan.md", "decisions.md", "trace.jsonl")


class NamedArtifact(BaseModel):
    """As entry `entry`, its newest mention, describes it. `size` is in bytes, `sha256` in hex."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    path: str
    content_type: Annotated[str | None, Told] = None
    size: Annotated[int | None, Field(strict=True, ge=0), Told] = None
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$"), Told] = None
    step: int
    entry: int

    @property
    def is_kept(self) -> bool:
        return is_artifact_path(self.path)

    def is_brought_by(self, content: bytes) -> bool:
        return self.sha256 in (None, hashlib.sha256(content).hexdigest())


def is_artifact_path(path: str) -> bool:
    return ARTIFACT_PATH.fullmatch(path) is not None


def named_artifacts(records: Iterable[Record]) -> tuple[NamedArtifact, ...]:
    named: dict[str, NamedArtifact] = {}
    for record in records:
        event = record.event
        if isinstance(event, ToolReturned) and Finished in record.kinds:
            about = {"step": event.result.step, "entry": record.entry.seq}
            for described in _described(event.result.result):
                named[described["path"]] = NamedArtifact.model_validate(described | about)
    return tuple(named.values())


def kept_artifacts(records: Iterable[Record]) -> dict[str, NamedArtifact]:
    """By path, those with a lawful name."""
    return {one.path: one for one in named_artifacts(records) if one.is_kept}


def _described(output: ToolOutput | None) -> list[dict[str, Any]]:
    listed = (output.model_extra or {}).get("artifacts") if output else None
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    found = [one for one in found if isinstance(one.get("path"), str)]
    if output and output.artifact_path and output.artifact_path not in [one["path"] for one in found]:
        found.append({"path": output.artifact_path, "content_type": output.content_type})
    return found
