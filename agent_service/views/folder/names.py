"""Which names a run's folder and its files may have."""

import re
from collections.abc import Mapping

from agent_service.history.artifacts import FILES, is_artifact_path

ARTIFACTS = "artifacts"

Files = Mapping[str, bytes]
"""Contents by path below the run's folder."""

_RUN_ID = re.compile(r"run_[0-9A-HJKMNP-TV-Z]{26}")


class IllegalName(ValueError):
    """No run and no file of a run may have this name; nothing was touched."""


def checked(run_id: str) -> str:
    """The run's folder below the root. Raises IllegalName for what is not `run_` and a ULID."""
    if not is_run(run_id):
        raise IllegalName(f"{run_id[:80]!r} is no run id of ours ({_RUN_ID.pattern}): it has no folder")
    return run_id


def is_run(name: str) -> bool:
    return bool(_RUN_ID.fullmatch(name))


def place_of(path: str) -> tuple[str, str]:
    """Folder (empty for the run's own) and name of a file. Raises IllegalName."""
    if path in FILES:
        return "", path
    if is_artifact_path(path):
        return ARTIFACTS, path.removeprefix(f"{ARTIFACTS}/")
    raise IllegalName(f"{path[:120]!r} is no file of a run: it has {', '.join(FILES)} and {ARTIFACTS}/<name>")
