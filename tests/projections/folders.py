"""Names in the workspaces of tests, and what lies in them."""

from pathlib import Path

RUN = "run_01JD7Z0000000000000000000A"
OTHER = "run_01JD7Z0000000000000000000B"
SECRET = b"the secret of another"


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
