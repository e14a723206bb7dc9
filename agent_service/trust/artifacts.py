"""Artifacts whose content has the SHA-256 that the journal recorded: a changed bucket must not prove a claim."""

import logging

from agent_service.errors import Replaced
from agent_service.history.artifacts import named_artifacts
from agent_service.run.ports import Archive, KeptArtifacts

log = logging.getLogger(__name__)


class ProvenArtifacts:
    """Fills the port KeptArtifacts, over another that is not believed."""

    def __init__(self, artifacts: KeptArtifacts, archive: Archive) -> None:
        self._artifacts = artifacts
        self._archive = archive

    async def get(self, run_id: str, path: str) -> bytes | None:
        content = await self._artifacts.get(run_id, path)
        if content is None:
            return None
        records = (entry.record() for entry in await self._archive.entries(run_id) if path in entry.event)
        if not all(one.is_brought_by(content) for one in named_artifacts(records) if one.path == path):
            log.error("an artifact was replaced", extra={"run_id": run_id, "path": path})
            raise Replaced(run_id, path)
        return content

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        await self._artifacts.put(run_id, path, content)
