"""The runs in an archive: `runs.jsonl` has a line per run; a folder has a run's journal, and in an export its pages."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent_service.core.waiting import Status
from agent_service.run.journal import Commit, Entry, followed, growth_of
from agent_service.store.messages import SideRecord, record_in
from agent_service.views.pages import JOURNAL
from agent_service.views.workspace.files import FileList
from groundwork.archive.format import Archive, ArchiveWriter, Hash
from groundwork.service.errors import Misconfigured
from groundwork.service.store_folder import ID_FILE
from schemas.fields import Instant
from schemas.values import replace

AGENT, GATEWAY = "agentic", "gateway"
RUNS, BESIDE = "runs.jsonl", "beside.jsonl"
ARTIFACTS = "artifacts"
STORE_FILES = (ID_FILE, "progress.wanted")
OPEN = frozenset({Status.QUEUED, Status.RUNNING, Status.PAUSED})

_ENTRY = TypeAdapter(Entry)


class ArchivedRun(BaseModel):
    """`digest`: of its wake. `head`: hash of entry `version`, the newest. `positions`: of its entries in the journal of
    all runs. `artifacts_gone`: the rule that deleted them. `left_out`: reasons by artifact or child."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    wake_id: str
    digest: str
    accepted_at: Instant
    status: Status
    version: Annotated[int, Field(ge=1)]
    head: Hash
    dispatched_up_to: int = 0
    artifacts_gone: str = ""
    positions: tuple[int, ...] = ()
    left_out: dict[str, str] = {}


def commits_of(run: ArchivedRun, entries: Sequence[Entry]) -> list[Commit]:
    """Commits of a journal, decided again; the newest has the brief and every growing item. Raises ValueError for
    entries that cannot be followed, or end otherwise than `run` says."""
    *commits, newest = followed(entries, run.run_id)
    state = newest.state
    found = newest.entry.seq, newest.entry.hash, len(entries), state.status, state.wake_id, state.accepted_at
    said = run.version, run.head, len(run.positions), run.status, run.wake_id, run.accepted_at
    if found != said:
        raise ValueError(f"{RUNS} says something else of the run than its journal")
    return [*commits, replace(newest, brief=state.brief, growth=growth_of(None, state))]


def journal_name(run_id: str) -> str:
    return f"{run_id}/{JOURNAL}.jsonl"


def add_journal(archive: ArchiveWriter, run_id: str, entries: Iterable[Entry]) -> None:
    archive.add_lines(journal_name(run_id), map(_ENTRY.dump_json, entries))


def add_runs(archive: ArchiveWriter, runs: Iterable[ArchivedRun]) -> None:
    archive.add_lines(RUNS, (run.model_dump_json().encode() for run in runs))


def add_side_records(archive: ArchiveWriter, records: Iterable[SideRecord]) -> None:
    archive.add_lines(BESIDE, (f'["{record.subject}",{record.text}]'.encode() for record in records))


class ArchivedRuns:
    """The runs of an open archive. Methods raise Misconfigured for what cannot be read."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.all = tuple(archive.decoded(ArchivedRun, RUNS, line) for line in archive.lines(RUNS))
        self._folders = defaultdict[str, list[str]](list)
        for name in archive.manifest.files:
            run_id, _, below = name.partition("/")
            self._folders[run_id].append(below)

    def entries(self, run_id: str) -> list[Entry]:
        name = journal_name(run_id)
        return [self.archive.decoded(Entry, name, line) for line in self.archive.lines(name)]

    def side_records(self) -> list[SideRecord]:
        return list(map(self._side_record, self.archive.lines(BESIDE)))

    def _side_record(self, line: bytes) -> SideRecord:
        with suppress(ValueError, TypeError):
            subject, text = json.loads(line)
            if record := record_in(str(subject), json.dumps(text)):
                return record
        program = self.archive.manifest.program
        raise Misconfigured(f"{self.archive.path}: {BESIDE} cannot be read: use the version that made it, {program}")

    def artifacts(self) -> Iterator[tuple[str, str]]:
        """Pairs of run and path."""
        for run_id, names in self._folders.items():
            yield from ((run_id, name) for name in names if name.startswith(f"{ARTIFACTS}/"))

    def files(self, run_id: str) -> FileList:
        """All but the journal; with `read` it is a folder of views.pages."""
        others = (name for name in self._folders.get(run_id, ()) if f"{run_id}/{name}" != journal_name(run_id))
        return FileList(run_id=run_id, files=(), foreign=tuple(others))

    def read(self, run_id: str, path: str) -> bytes | None:
        name = f"{run_id}/{path}"
        return self.archive.read(name) if name in self.archive.manifest.files else None
