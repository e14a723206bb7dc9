"""The runs in an archive: a line of `runs.jsonl` for each, its journal, and in an export its pages; and whether all is
as the agent wrote it, asked of the archive alone, and of a public key to prove whose it is.

In this order: the signature, each file by the manifest, each journal, what is said of each run, and its children. Runs
are not judged where a file was changed.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.history.plain import is_whole
from agent_service.history.results import FILES, is_artifact_path
from agent_service.run.changes import as_decided
from agent_service.run.journal import Entry
from agent_service.store.words import Word, word_in
from agent_service.views.folder.verify import Flaw, flaw_in_journal, verify
from agent_service.views.folder.workspace import Listing
from groundwork.archive.format import MANIFEST, SIGNATURE, Archive, Hash, Writer
from groundwork.service.installed import installed_version
from schemas.fields import Instant
from schemas.values import replace

RUNS, BESIDE, JOURNAL = "runs.jsonl", "beside.jsonl", "journal.jsonl"
ARTIFACTS = "artifacts"


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


def write_beside(archive: Writer, words: Iterable[Word]) -> None:
    """Tombstones, dismissals and stops lie beside the runs."""
    archive.add(BESIDE, "".join(f'["{word.subject}",{word.text}]\n' for word in words).encode())


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

    def beside(self) -> list[Word]:
        said = map(json.loads, self.archive.read(BESIDE).splitlines())
        return [word for subject, fact in said if (word := word_in(subject, json.dumps(fact)))]

    def artifacts(self) -> Iterator[tuple[str, str]]:
        """Run and path of each."""
        for run_id, names in self._folders.items():
            yield from ((run_id, name) for name in names if name.startswith(f"{ARTIFACTS}/"))

    def files(self, run_id: str) -> Listing:
        """All but the journal; with `read` it is a folder of views.folder.verify."""
        return Listing(files=(), foreign=tuple(name for name in self._folders.get(run_id, ()) if name != JOURNAL))

    def read(self, run_id: str, path: str) -> bytes | None:
        name = f"{run_id}/{path}"
        return self.archive.read(name) if name in self.archive.manifest.files else None


def judge(archive: Archive, *, key: str | None = None) -> Sequence[Flaw]:
    """`key`: the public half of the key that it has to be signed with. Raises Misconfigured where it cannot be read."""
    flaws = [*_of_signature(archive, key)] or [changed(name, text) for name, text in archive.flaws()]
    if flaws:
        return flaws
    runs = Runs(archive)
    known = Counter(run.run_id for run in runs.all)
    for run_id, times in known.items():
        if not is_whole(run_id):
            flaws.append(changed(RUNS, f"{run_id[:40]!r} is not an id of a run"))
        elif times > 1:
            flaws.append(changed(RUNS, f"the run {run_id} is there more than once"))
    for run in () if flaws else runs.all:
        flaws += [replace(flaw, place=f"{run.run_id}/{flaw.place}") for flaw in _of_run(runs, run, known)]
    return flaws


def changed(place: str, text: str) -> Flaw:
    return Flaw(kind="changed", place=place, text=text)


def _of_signature(archive: Archive, key: str | None) -> Iterator[Flaw]:
    by = archive.signature
    if by is None:
        if key:
            yield Flaw(kind="missing", place=SIGNATURE, text="it is not signed")
    elif not archive.is_signed():
        yield changed(MANIFEST, f"it is not what was signed with the key {by.key}")
    elif key and key != by.public:
        yield changed(SIGNATURE, f"another key has signed it: {by.key}, public {by.public}")


def _of_run(runs: Runs, run: ArchivedRun, known: Counter[str]) -> Iterator[Flaw]:
    entries = runs.entries(run.run_id)
    if flaw := flaw_in_journal(entries, run.run_id):
        yield changed(JOURNAL, flaw)
        return
    state, manifest = as_decided(entries), runs.archive.manifest
    yield from _of_line(run, entries, state)
    yield from () if BESIDE in manifest.files else _of_children(run, state, known)
    stay = manifest.moved or bool(run.artifacts_gone) or ARTIFACTS in manifest.left_out
    for one in verify(entries, runs, run.run_id):
        is_known = stay or one.place in run.left_out
        is_page_of_another_version = one.place in FILES and manifest.program != installed_version()
        is_artifact = one.kind == "extra" and is_artifact_path(one.place)
        if not (is_known if one.kind == "missing" else is_page_of_another_version or is_artifact):
            yield one


def _of_line(run: ArchivedRun, entries: Sequence[Entry], state: RunState) -> Iterator[Flaw]:
    journal = (len(entries), entries[-1].hash, state.status, state.wake_id, state.accepted_at)
    if journal != (run.version, run.head, run.status, run.wake_id, run.accepted_at):
        yield changed(f"../{RUNS}", "it says something else of the run than the journal")


def _of_children(run: ArchivedRun, state: RunState, known: Counter[str]) -> Iterator[Flaw]:
    """Of an export, which has a run with all that it started."""
    for child in state.children:
        if child.run_id not in known and child.run_id not in run.left_out:
            yield Flaw(kind="missing", place=f"../{child.run_id}", text=f"the run that step {child.step} started")
