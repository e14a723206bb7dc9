"""The runs in an archive: a line of `runs.jsonl` for each, its journal, and in an export its pages; how they are stored
anew, and whether all is as the agent wrote it, asked of the archive alone.

    store ─▶ runs and their entries ─▶ archive ─▶ entries, decided again ─▶ a database, or the log of many

A log holds what is there already as it is, so that an interrupted restore is finished by the same command. An archive
is judged in this order: the signature, each file by the manifest, each journal, what is said of each run, and its
children. ArchivedRuns are not judged where a file was changed.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent_service.archive.retention import ArtifactTombstone
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.history.results import FILES, is_artifact_path
from agent_service.history.run_names import is_run_id
from agent_service.run.inbound import turn_id
from agent_service.run.journal import Commit, Entry, flaw_in_chain, growth_of
from agent_service.run.ports import Dismissal
from agent_service.run.replay import replay, replayed_state
from agent_service.store.database import load_queries
from agent_service.store.messages import (
    LEVEL,
    ROW,
    ArtifactTombstoneRecord,
    DismissalRecord,
    HaltRecord,
    RunRow,
    SideRecord,
    TombstoneRecord,
    encoded,
    message_of,
    record_in,
    row_in,
)
from agent_service.store.rows import (
    Statement,
    halt_of,
    new_run_columns,
    run_columns,
    statements_of,
    store_commit,
    tombstone_of,
)
from agent_service.store.sqlite import RunStore
from agent_service.views.workspace.files import Listing
from agent_service.views.workspace.verification import Flaw, flaw_in_journal, verify
from groundwork.archive.format import MANIFEST, SIGNATURE, Archive, ArchiveWriter, Hash
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.service.program import installed_version
from groundwork.sqlite.file import SqliteFile, instant
from schemas import subjects
from schemas.fields import Instant
from schemas.values import dataclass, replace

RUNS, BESIDE, JOURNAL = "runs.jsonl", "beside.jsonl", "journal.jsonl"
ARTIFACTS = "artifacts"


_ENTRY = TypeAdapter(Entry)


class ArchivedRun(BaseModel):
    """`digest`: of its wake. `head`: hash of its newest entry, `version`. `dispatched_up_to`: the entry up to which its
    effects are done. `positions`: of its entries in the journal of all runs. `artifacts_gone`: why they were deleted.
    `left_out`: artifacts and children that are not in the archive, and why."""

    model_config = ConfigDict(frozen=True, extra="ignore")

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


def journal_name(run_id: str) -> str:
    return f"{run_id}/{JOURNAL}"


def journal_of(entries: Iterable[Entry]) -> bytes:
    return b"".join(_ENTRY.dump_json(entry) + b"\n" for entry in entries)


def write_runs(archive: ArchiveWriter, runs: Iterable[ArchivedRun]) -> None:
    archive.add(RUNS, "".join(f"{run.model_dump_json()}\n" for run in runs).encode())


def write_side_records(archive: ArchiveWriter, words: Iterable[SideRecord]) -> None:
    """Tombstones, dismissals and stops lie beside the runs."""
    archive.add(BESIDE, "".join(f'["{word.subject}",{word.text}]\n' for word in words).encode())


class ArchivedRuns:
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
        return [self.archive.decoded(Entry, name, line) for line in self.archive.read(name).splitlines()]

    def beside(self) -> list[SideRecord]:
        said = map(json.loads, self.archive.read(BESIDE).splitlines())
        return [word for subject, fact in said if (word := record_in(subject, json.dumps(fact)))]

    def artifacts(self) -> Iterator[tuple[str, str]]:
        """Run and path of each."""
        for run_id, names in self._folders.items():
            yield from ((run_id, name) for name in names if name.startswith(f"{ARTIFACTS}/"))

    def files(self, run_id: str) -> Listing:
        """All but the journal; with `read` it is a folder of views.workspace.verification."""
        return Listing(files=(), foreign=tuple(name for name in self._folders.get(run_id, ()) if name != JOURNAL))

    def read(self, run_id: str, path: str) -> bytes | None:
        name = f"{run_id}/{path}"
        return self.archive.read(name) if name in self.archive.manifest.files else None


def judge(archive: Archive, *, key: str | None = None) -> Sequence[Flaw]:
    """`key`: the public half of the key that it has to be signed with. Raises Misconfigured where it cannot be read."""
    flaws = [*_of_signature(archive, key)] or [changed(name, text) for name, text in archive.flaws()]
    if flaws:
        return flaws
    runs = ArchivedRuns(archive)
    known = Counter(run.run_id for run in runs.all)
    for run_id, times in known.items():
        if not is_run_id(run_id):
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


def _of_run(runs: ArchivedRuns, run: ArchivedRun, known: Counter[str]) -> Iterator[Flaw]:
    entries = runs.entries(run.run_id)
    if flaw := flaw_in_journal(entries, run.run_id):
        yield changed(JOURNAL, flaw)
        return
    state, manifest = replayed_state(entries), runs.archive.manifest
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


AT_ONCE = 500
TOGETHER = 32
"""ArchivedRuns that are written at once, or are on their way to a log."""


async def stored_runs(store: RunStore, *, only: str = "") -> AsyncIterator[ArchivedRun]:
    """By id; all, or `only` that one."""
    sql, after = load_queries()["archived"], ""
    while rows := await store.database.read(sql, (after, AT_ONCE, only or None)):
        for run_id, wake_id, digest, accepted_at, status, version, head, told, artifacts_gone in rows:
            yield ArchivedRun(
                run_id=run_id,
                wake_id=wake_id,
                digest=digest,
                accepted_at=instant(accepted_at),
                status=status,
                version=version,
                head=head.hex(),
                dispatched_up_to=told,
                positions=await store.positions(run_id),
                artifacts_gone=artifacts_gone or "",
            )
        after = rows[-1][0]


async def side_records(store: RunStore) -> list[SideRecord]:
    """Dismissals, stops of all, tombstones, and which artifacts were deleted."""
    sql, read = load_queries(), store.database.read
    words = list[SideRecord]()
    for run_id, version, by, at in await read(sql["all_dismissals"]):
        seen = Dismissal(run_id=run_id, version=version, by=by, at=instant(at))
        words.append(DismissalRecord(v=LEVEL, dismissal=seen))
    words += [HaltRecord(v=LEVEL, by="", halt=halt_of(row)) for row in await read(sql["all_halts"])]
    for run_id, rule, at in await read(sql["all_artifacts_gone"]):
        words.append(
            ArtifactTombstoneRecord(v=LEVEL, gone=ArtifactTombstone(run_id=run_id, gone_at=instant(at), rule=rule))
        )
    words += [TombstoneRecord(v=LEVEL, stone=tombstone_of(row), version=0) for row in await read(sql["tombstones"])]
    return words


def flaw_of(run: ArchivedRun, entries: Sequence[Entry]) -> str | None:
    if flaw := flaw_in_chain(entries):
        return flaw
    newest = entries[-1] if entries else None
    is_whole = newest and (newest.run_id, len(entries), newest.hash) == (run.run_id, run.version, run.head)
    return None if is_whole else f"its journal does not end with entry {run.version}"


def commits_of(run: ArchivedRun, entries: Sequence[Entry]) -> list[Commit]:
    """The newest has all that grew. Raises ValueError, with what is wrong, for entries that cannot be followed, or that
    are not those of the run."""
    if flaw := flaw_of(run, entries):
        raise ValueError(flaw)
    first, *commits = replay(entries)
    commits.insert(0, replace(first, brief=first.state.brief))
    newest = commits[-1].state
    commits[-1] = replace(commits[-1], brief=newest.brief, growth=growth_of(None, newest))
    return commits


@dataclass(slots=True)
class DatabaseLoader:
    """The caller alone has the database open."""

    database: SqliteFile
    _runs: list[list[Statement]] = field(init=False, default_factory=list)

    async def add(self, run: ArchivedRun, entries: Sequence[Entry]) -> None:
        """Raises ValueError as `commits_of` does."""
        commits = commits_of(run, entries)
        columns = *run_columns(commits, run.dispatched_up_to), *new_run_columns(commits[0].state, run.digest)
        entries_of = [statements_of(*one) for one in zip(commits, run.positions, strict=True)]
        self._runs.append([("add_run", columns), *chain(*entries_of)])
        if len(self._runs) >= TOGETHER:
            await self.write()

    async def write(self) -> None:
        runs, self._runs = self._runs, []
        await self.database.write(lambda connection: [store_commit(connection, *statements) for statements in runs])


async def copy_into_log(log: SharedLog, store: RunStore) -> None:
    """All of the store. Raises ValueError as `commits_of` does, Misconfigured where the log has another run, and
    TryAgain."""
    some = list[Coroutine[Any, Any, None]]()
    async for run in stored_runs(store):
        some.append(_append_run(log, run, await store.entries(run.run_id)))
        if len(some) == TOGETHER:
            await asyncio.gather(*some)
            some.clear()
    await asyncio.gather(*some)
    for word in await side_records(store):
        newest = await log.newest(word.subject)
        if newest is None or newest.headers.get(ROW) != word.text:
            await _append(log, word.subject, b"", None, word.header)


async def _append_run(log: SharedLog, run: ArchivedRun, entries: Sequence[Entry]) -> None:
    """What is not fully dispatched is of one turn, which an agent queues."""
    commits, subject = commits_of(run, entries), subjects.stored_run(run.wake_id, run.run_id)
    newest = await log.newest(subjects.stored_wake(run.wake_id))
    row, place = (row_in(newest), newest.seq) if newest else (None, 0)
    if newest and (row is None or row.seq > len(commits) or row.head != commits[row.seq - 1].entry.hash):
        raise Misconfigured(f"the log has another entry of {subject}: use a stream made anew")
    for commit in commits[row.seq if row else 0 :]:
        by = turn_id(run.run_id, run.version) if commit.entry.seq > run.dispatched_up_to else ""
        newest_one = commit.entry.seq == run.version
        body = encoded(message_of(commit, by, whole=newest_one))
        told = run.dispatched_up_to if newest_one else 0
        row = RunRow.of(commit, row, by=by, told=told, digest=run.digest, whole_at=0, size=len(body))
        place = await _append(log, subject, body, place, row.header)


async def _append(log: SharedLog, subject: str, body: bytes, after: int | None, headers: Mapping[str, str]) -> int:
    try:
        return await log.append(subject, body, after=after, headers=headers)
    except Moved as error:
        raise Misconfigured(
            f"another process writes to {subject}: stop all agents that share this store, then run this again"
        ) from error
