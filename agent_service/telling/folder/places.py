"""Where a run's files are, by name: nothing that is not of these forms ever reaches the disk. Pure."""

import re

from agent_service.telling.folder.trail import FILES
from agent_service.telling.outputs import is_artifact_path

STAGING = ".staging"
ARTIFACTS = "artifacts"

_RUN_ID = re.compile(r"run_[0-9A-HJKMNP-TV-Z]{26}")


class IllegalName(ValueError):
    """No run and no file of a run may be called so; nothing was touched."""


def checked(run_id: str) -> str:
    """The run's folder below the root. Raises IllegalName for what is not `run_` and a ULID."""
    if not _RUN_ID.fullmatch(run_id):
        raise IllegalName(f"{run_id[:80]!r} is no run id of ours ({_RUN_ID.pattern}): it has no folder")
    return run_id


def place_of(path: str) -> tuple[str, str]:
    """Folder (empty for the run's own) and name of a run's file. Raises IllegalName for any other path."""
    if path in FILES:
        return "", path
    if is_artifact_path(path):
        return ARTIFACTS, path.removeprefix(f"{ARTIFACTS}/")
    raise IllegalName(f"{path[:120]!r} is no file of a run: it has {', '.join(FILES)} and {ARTIFACTS}/<name>")
