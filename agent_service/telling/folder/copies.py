"""Copies of a run's artifacts for its folder: which are missing there, and their contents from the object store.

A content is copied only if it is the one that the journal names (by hash, where it names one), has a lawful name and is
not too large. What the store no longer has is left out: pages outlive artifacts.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Sequence

from agent_service.ports import Artifacts
from agent_service.telling.folder.disk import TooLarge, Unsafe
from agent_service.telling.folder.workspace import MAX_BYTES, Workspace
from agent_service.telling.moments import Moment
from agent_service.telling.outputs import NamedArtifact, is_artifact_path, named_artifacts

MAX_ARTIFACTS = 100
"""Copied per run, the first ones; the store has the rest."""
MAX_TOTAL = 4 * MAX_BYTES
"""Bytes of one run copied at once."""

log = logging.getLogger(__name__)


class Copies:
    """Between the store of artifacts and the workspace."""

    def __init__(self, artifacts: Artifacts, workspace: Workspace) -> None:
        self._artifacts = artifacts
        self._workspace = workspace

    async def of(self, moments: Sequence[Moment]) -> dict[str, bytes]:
        """The contents of a run's artifacts by path. Raises what the store raises when it cannot be read."""
        return await self._fetched(moments, _lawful(moments))

    async def missing(self, moments: Sequence[Moment]) -> dict[str, bytes]:
        """The same, without those that the run's folder has."""
        named = _lawful(moments)
        if not named:
            return {}
        run = moments[-1].after
        return await self._fetched(
            moments,
            await asyncio.to_thread(lambda: [a for a in named if not self._is_there(run.run_id, a, ended=run.final)]),
        )

    def _is_there(self, run_id: str, artifact: NamedArtifact, *, ended: bool) -> bool:
        """Without a hash to compare, a copy is good while the run goes on, and made once more when it has ended."""
        try:
            copy = self._workspace.read(run_id, artifact.path)
        except (Unsafe, TooLarge):
            return False
        if copy is None or artifact.sha256 is None:
            return copy is not None and not ended
        return hashlib.sha256(copy).hexdigest() == artifact.sha256

    async def _fetched(self, moments: Sequence[Moment], wanted: Iterable[NamedArtifact]) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        for artifact in wanted:
            run_id = moments[-1].after.run_id
            room = min(MAX_BYTES, MAX_TOTAL - sum(map(len, contents.values())))
            content = None if (artifact.size or 0) > room else await self._artifacts.get(run_id, artifact.path)
            why = _why_not(artifact, content, room)
            if why:
                log.warning("artifact not copied", extra={"run_id": run_id, "path": artifact.path, "why": why})
            elif content is not None:
                contents[artifact.path] = content
        return contents


def _lawful(moments: Sequence[Moment]) -> list[NamedArtifact]:
    return [artifact for artifact in named_artifacts(moments) if is_artifact_path(artifact.path)][:MAX_ARTIFACTS]


def _why_not(artifact: NamedArtifact, content: bytes | None, room: int) -> str | None:
    size = artifact.size if content is None else len(content)
    if size is not None and size > room:
        return f"its {size} bytes are more than a file or the run may have here"
    if content is None:
        return "the store does not have it any more"
    if artifact.sha256 and hashlib.sha256(content).hexdigest() != artifact.sha256:
        return "its hash is not the one that the journal names"
    return None
