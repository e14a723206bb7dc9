"""Reads the files of a run: from its folder, and an artifact without a copy there from the store."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from agent_service.history.artifacts import NamedArtifact
from agent_service.run.ports import Artifacts
from agent_service.views.folder.rendering import Rendered
from agent_service.views.folder.workspace import MAX_BYTES, Listing, Workspace


class ArtifactChanged(Exception):
    """What is stored under the artifact's name is not what the journal recorded."""


UpToDate = Callable[[str], Awaitable[Rendered | None]]
"""Brings a run's folder up to date, and returns what is in it. May raise TryAgain and Damaged."""


class RunFiles:
    def __init__(self, workspace: Workspace, artifacts: Artifacts, up_to_date: UpToDate) -> None:
        self._workspace = workspace
        self._artifacts = artifacts
        self._up_to_date = up_to_date

    async def files(self, run_id: str) -> Listing | None:
        """Raises as Workspace.files."""
        await self._up_to_date(run_id)
        return await asyncio.to_thread(self._workspace.files, run_id)

    async def read(self, run_id: str, path: str) -> bytes | None:
        """None where there is none. Raises as Workspace.read and the ports, and ArtifactChanged."""
        rendered = await self._up_to_date(run_id)
        copy = await asyncio.to_thread(self._workspace.read, run_id, path)
        named = rendered.artifact(path) if rendered else None
        if named is None or (copy is not None and _is(copy, named)):
            return copy
        content = await self._artifacts.get(run_id, path) if (named.size or 0) <= MAX_BYTES else None
        if content is not None and _is(content, named):
            return content
        if content is None and copy is None:
            return None
        raise ArtifactChanged(f"{path} of run {run_id} is not what entry {named.entry} of its journal recorded")


def _is(content: bytes, named: NamedArtifact) -> bool:
    return named.sha256 is None or hashlib.sha256(content).hexdigest() == named.sha256
