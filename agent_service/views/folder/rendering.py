"""Renders the files of a run from its stored entries, and writes them with copies of its artifacts."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from agent_service.core.state import RunState
from agent_service.errors import Changed
from agent_service.history.artifacts import NamedArtifact, is_artifact_path, named_artifacts
from agent_service.run.changes import Journals
from agent_service.run.journal import Entry, Run, flaw_in_chain
from agent_service.run.ports import Artifacts
from agent_service.views.folder.disk import TooLarge, Unsafe
from agent_service.views.folder.workspace import MAX_BYTES, Workspace
from agent_service.views.pages.files import pages
from schemas.values import dataclass

MAX_ARTIFACTS = 100
MAX_TOTAL = 4 * MAX_BYTES

log = logging.getLogger(__name__)


class Runs(Journals, Protocol):
    async def load(self, run_id: str) -> Run | None:
        """Raises Damaged and TryAgain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`artifacts` are those with a lawful name; `version` is the newest entry's number."""

    artifacts: tuple[NamedArtifact, ...]
    ended: bool
    version: int

    def artifact(self, path: str) -> NamedArtifact | None:
        return next((artifact for artifact in self.artifacts if artifact.path == path), None)


async def write(run_id: str, journals: Runs, workspace: Workspace, artifacts: Artifacts) -> Rendered | None:
    """Writes what differs, in a thread; None for a run without entries. Raises Changed for a broken chain, Damaged, and
    as `Workspace.write` and the ports do.
    """
    run = await journals.load(run_id)
    if run is None:
        return None
    entries = await journals.entries(run_id, limit=run.state.version)
    rendered, missing = await asyncio.to_thread(_written, run.state, entries, workspace)
    if copies := await _fetched(artifacts, run_id, missing):
        await asyncio.to_thread(workspace.write, run_id, copies)
    return rendered


def _written(run: RunState, entries: Sequence[Entry], workspace: Workspace) -> tuple[Rendered, list[NamedArtifact]]:
    if flaw := flaw_in_chain(entries):
        raise Changed(run.run_id, flaw)
    records = [entry.record() for entry in entries]
    workspace.write(run.run_id, {name: text.encode() for name, text in pages(run, records).items()})
    artifacts = tuple(one for one in named_artifacts(records) if is_artifact_path(one.path))
    rendered = Rendered(artifacts=artifacts, ended=run.final, version=len(records))
    copied = rendered.artifacts[:MAX_ARTIFACTS]
    return rendered, [one for one in copied if not _is_there(workspace, run.run_id, one, ended=run.final)]


def _is_there(workspace: Workspace, run_id: str, artifact: NamedArtifact, *, ended: bool) -> bool:
    """Without a hash it may have changed by the end."""
    try:
        copy = workspace.read(run_id, artifact.path)
    except (Unsafe, TooLarge):
        return False
    return copy is not None and artifact.is_brought_by(copy) and not (ended and artifact.sha256 is None)


async def _fetched(artifacts: Artifacts, run_id: str, wanted: Iterable[NamedArtifact]) -> dict[str, bytes]:
    """By path. Raises what the store raises."""
    contents: dict[str, bytes] = {}
    for artifact in wanted:
        room = min(MAX_BYTES, MAX_TOTAL - sum(map(len, contents.values())))
        content = None if (artifact.size or 0) > room else await artifacts.get(run_id, artifact.path)
        if why := _why_not(artifact, content, room):
            log.warning("artifact not copied", extra={"run_id": run_id, "path": artifact.path, "why": why})
        elif content is not None:
            contents[artifact.path] = content
    return contents


def _why_not(artifact: NamedArtifact, content: bytes | None, room: int) -> str | None:
    size = artifact.size if content is None else len(content)
    if size is not None and size > room:
        return f"its {size} bytes are more than a file or the run may have here"
    if content is None:
        return "the store does not have it any more"
    if not artifact.is_brought_by(content):
        return "its hash is not the one that the journal names"
    return None
