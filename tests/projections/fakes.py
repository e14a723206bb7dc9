"""In-memory sources of folders and traces; they count reads and can fail."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent_service.errors import Damaged
from agent_service.run.journal import Entry, Run, replay
from agent_service.store.runs import RunStore

RUN = "run_01JD7Z0000000000000000000A"
OTHER = "run_01JD7Z0000000000000000000B"
SECRET = b"the secret of another"
EVER = datetime(1970, 1, 1, tzinfo=UTC)


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


class Journals(RunStore):
    def __init__(self, *journals: Sequence[Entry]) -> None:
        self.journals = {journal[0].run_id: list(journal) for journal in journals}
        self.reads: list[str] = []
        self.failure: Exception | None = None
        self.unreadable: dict[str, Exception] = {}
        self.damaged: list[Damaged] = []

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        self.reads.append(run_id)
        if failure := self.failure or self.unreadable.get(run_id):
            raise failure
        return [entry for entry in self.journals.get(run_id, []) if entry.seq > after][:limit]

    async def load(self, run_id: str, version: int = 0) -> Run | None:
        del version
        *_, newest = [None, *replay(self.journals.get(run_id, []))]
        return Run(state=newest.state, head=newest.entry.hash) if newest else None

    async def changed_since(self, since: datetime, *, or_open: bool = False) -> Sequence[str]:
        if self.failure:
            raise self.failure
        open_ones = list[str]()
        for run_id in self.journals if or_open else ():
            run = await self.load(run_id)
            open_ones += [run_id] if run and not run.state.final else []
        return [run_id for run_id, them in self.journals.items() if run_id in open_ones or them[-1].at >= since]

    def quarantine(self, found: Damaged) -> None:
        self.damaged.append(found)


class Shelf:
    """Fills the port ArtifactReader, for one run."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = contents or {}
        self.reads: list[str] = []
        self.failure: Exception | None = None

    async def get(self, run_id: str, path: str) -> bytes | None:  # noqa: ARG002 - it holds one run's contents
        self.reads.append(path)
        if self.failure:
            raise self.failure
        return self.contents.get(path)
