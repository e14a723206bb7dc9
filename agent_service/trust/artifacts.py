"""Artifacts whose content has the SHA-256 that the journal recorded: a changed bucket must not prove a claim."""

import hashlib
import logging
from collections.abc import Sequence

from agent_service.core.events import ToolReturned
from agent_service.errors import Replaced
from agent_service.run.journal import Entry
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
        recorded = _recorded(await self._archive.entries(run_id), path)
        if recorded and recorded != hashlib.sha256(content).hexdigest():
            log.error("an artifact was replaced", extra={"run_id": run_id, "path": path})
            raise Replaced(run_id, path)
        return content

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        await self._artifacts.put(run_id, path, content)


def _recorded(entries: Sequence[Entry], path: str) -> str:
    for entry in reversed(entries):
        event = entry.decoded() if entry.kind == ToolReturned.__name__ and path in entry.event else None
        output = event.result.result if isinstance(event, ToolReturned) else None
        listed = (output.model_extra or {}).get("artifacts") if output else None
        for about in listed if isinstance(listed, list) else ():
            if isinstance(about, dict) and about.get("path") == path and isinstance(about.get("sha256"), str):
                return str(about["sha256"])
    return ""
