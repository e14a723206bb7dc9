"""What the projector reads from, filled by hand; each counts its reads and can be made to fail."""

from collections.abc import Sequence
from pathlib import Path

from agent_service.run.journal import Entry

RUN = "run_01JD7Z0000000000000000000A"
OTHER = "run_01JD7Z0000000000000000000B"
SECRET = b"the secret of another"


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


class Journals:
    """Fills Journals."""

    def __init__(self, *journals: Sequence[Entry]) -> None:
        self.journals = {journal[0].run_id: list(journal) for journal in journals}
        self.reads: list[str] = []
        self.failure: Exception | None = None

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        self.reads.append(run_id)
        if self.failure:
            raise self.failure
        return [entry for entry in self.journals.get(run_id, []) if entry.seq > after][:limit]


class Shelf:
    """Fills the port Artifacts, for one run."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = contents or {}
        self.reads: list[str] = []
        self.failure: Exception | None = None

    async def get(self, run_id: str, path: str) -> bytes | None:  # noqa: ARG002 - it holds one run's contents
        self.reads.append(path)
        if self.failure:
            raise self.failure
        return self.contents.get(path)
