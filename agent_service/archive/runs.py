"""The runs in an archive: a line of `runs.jsonl` for each, its journal, and in an export its pages."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.waiting import Status
from agent_service.run.journal import Entry
from groundwork.archive.format import Archive, Hash, Writer
from schemas.fields import Instant

RUNS, BESIDE, JOURNAL = "runs.jsonl", "beside.jsonl", "journal.jsonl"
ARTIFACTS = "artifacts"

Said = tuple[str, bytes]
"""Subject and body of a fact: tombstones, dismissals and stops lie beside the runs."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ArchivedRun(_Line):
    """`digest`: of its wake. `head`: hash of its newest entry, `version`. `dispatched_up_to`: the entry up to which its
    effects are done. `positions`: of its entries in the journal of all runs. `artifacts_gone`: why they were deleted.
    `left_out`: artifacts and children that are not in the archive, and why."""

    run_id: str
    wake_id: str
    digest: str
    accepted_at: Instant
    status: Status
    version: Annotated[int, Field(ge=1)]
    head: Hash
    dispatched_up_to: int = 0
    positions: tuple[int, ...] = ()
    artifacts_gone: str = ""
    left_out: dict[str, str] = {}


class WrittenEntry(_Line):
    seq: int
    at: Instant
    kind: str
    event: str
    facts: str
    previous: Hash
    hash: Hash


def journal_name(run_id: str) -> str:
    return f"{run_id}/{JOURNAL}"


def journal_of(entries: Iterable[Entry]) -> bytes:
    fields = WrittenEntry.model_fields
    return _lines(WrittenEntry(**{name: getattr(entry, name) for name in fields}) for entry in entries)


def write_runs(archive: Writer, runs: Iterable[ArchivedRun]) -> None:
    archive.add(RUNS, _lines(runs))


def write_beside(archive: Writer, said: Iterable[Said]) -> None:
    archive.add(BESIDE, b"".join(b'["%b",%b]\n' % (subject.encode(), body) for subject, body in said))


def _lines(values: Iterable[_Line]) -> bytes:
    return "".join(f"{value.model_dump_json()}\n" for value in values).encode()


class Runs:
    """Of an open archive. Each method raises Misconfigured where it cannot be read."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        lines = archive.read(RUNS).splitlines()
        self.all = tuple(archive.decoded(ArchivedRun, RUNS, line) for line in lines)
        self._folders = defaultdict[str, list[str]](list)
        for name in archive.manifest.files:
            run_id, _, below = name.partition("/")
            self._folders[run_id].append(below)

    def entries(self, run_id: str) -> list[Entry]:
        name = journal_name(run_id)
        decoded = (self.archive.decoded(WrittenEntry, name, line) for line in self.archive.read(name).splitlines())
        return [Entry(run_id=run_id, **dict(entry)) for entry in decoded]

    def beside(self) -> Iterator[Said]:
        for line in self.archive.read(BESIDE).splitlines():
            subject, fact = json.loads(line)
            yield subject, json.dumps(fact).encode()

    def artifacts(self) -> Iterator[tuple[str, str]]:
        """Run and path of each."""
        for run_id, names in self._folders.items():
            yield from ((run_id, name) for name in names if name.startswith(f"{ARTIFACTS}/"))

    def files_of(self, run_id: str) -> dict[str, str]:
        """SHA-256 by path, of all but the journal."""
        files = self.archive.manifest.files
        return {name: files[f"{run_id}/{name}"] for name in self._folders.get(run_id, ()) if name != JOURNAL}
