"""Copies of a run's artifacts for its folder: which are missing, and their contents from the object store."""

import hashlib
import logging
from collections.abc import Iterable, Sequence

from agent_service.run.moments import Moment
from agent_service.run.ports import Artifacts
from agent_service.telling.folder.disk import TooLarge, Unsafe
from agent_service.telling.folder.workspace import MAX_BYTES, Workspace
from agent_service.telling.outputs import NamedArtifact, is_artifact_path, named_artifacts

MAX_ARTIFACTS = 100
MAX_TOTAL = 4 * MAX_BYTES

log = logging.getLogger(__name__)


def lawful(moments: Sequence[Moment]) -> tuple[NamedArtifact, ...]:
    return tuple(artifact for artifact in named_artifacts(moments) if is_artifact_path(artifact.path))[:MAX_ARTIFACTS]


def missing(workspace: Workspace, moments: Sequence[Moment]) -> tuple[NamedArtifact, ...]:
    run = moments[-1].after
    return tuple(a for a in lawful(moments) if not _is_there(workspace, run.run_id, a, ended=run.final))


async def fetched(artifacts: Artifacts, run_id: str, wanted: Iterable[NamedArtifact]) -> dict[str, bytes]:
    """By path. Raises what the store raises."""
    contents: dict[str, bytes] = {}
    for artifact in wanted:
        room = min(MAX_BYTES, MAX_TOTAL - sum(map(len, contents.values())))
        content = None if (artifact.size or 0) > room else await artifacts.get(run_id, artifact.path)
        why = _why_not(artifact, content, room)
        if why:
            log.warning("artifact not copied", extra={"run_id": run_id, "path": artifact.path, "why": why})
        elif content is not None:
            contents[artifact.path] = content
    return contents


def _is_there(workspace: Workspace, run_id: str, artifact: NamedArtifact, *, ended: bool) -> bool:
    try:
        copy = workspace.read(run_id, artifact.path)
    except (Unsafe, TooLarge):
        return False
    if copy is None or artifact.sha256 is None:
        return copy is not None and not ended
    return hashlib.sha256(copy).hexdigest() == artifact.sha256


def _why_not(artifact: NamedArtifact, content: bytes | None, room: int) -> str | None:
    size = artifact.size if content is None else len(content)
    if size is not None and size > room:
        return f"its {size} bytes are more than a file or the run may have here"
    if content is None:
        return "the store does not have it any more"
    if artifact.sha256 and hashlib.sha256(content).hexdigest() != artifact.sha256:
        return "its hash is not the one that the journal names"
    return None
