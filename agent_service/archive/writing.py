"""`agentic backup`, `agentic export --all` and `agentic export RUN`: runs into an archive.

A backup is made while agent and gateway run. It reads the runs at one instant, then the ledger, then artifacts, so the
ledger has each call of its runs, and the bucket each artifact. A tampered run is left out, because the agent signs the
archive. A run is exported with its children, pages and artifacts.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from agent_service import settings
from agent_service.archive import access
from agent_service.archive.access import ArchivedRun, ArchivedRuns, Report, StoreReader
from agent_service.archive.retention import ArtifactTombstone, Tombstone
from agent_service.archive.verifying import checked_journal
from agent_service.bus.buckets import FOLDER
from agent_service.core.waiting import Status
from agent_service.errors import NewerVersion
from agent_service.history.results import RecordedArtifact, kept_artifacts
from agent_service.run.journal import Entry, flaw_in_chain
from agent_service.run.ports import Dismissal
from agent_service.store.database import load_queries, value_of
from agent_service.store.messages import (
    LEVEL,
    ArtifactTombstoneRecord,
    DismissalRecord,
    HaltRecord,
    SideRecord,
    TombstoneRecord,
)
from agent_service.store.moving import leaving
from agent_service.store.runs import RunStore
from agent_service.views.pages import pages
from groundwork.archive.format import PART, Archive, ArchiveWriter, open_writer
from groundwork.archive.series import SUFFIX, Series, add_store
from groundwork.service.errors import Exit, Failure, Misconfigured, NotDone
from schemas.status import Halt, counted

AT_ONCE = 500

_ENTRY = TypeAdapter(Entry)


@dataclass(slots=True, kw_only=True)
class ArchiveReport:
    """`size`: bytes of new contents. `runs`: status by id, of an export. `keys`: key files that are not in it."""

    what: str
    file: str
    backup: str = ""
    size: int = 0
    about: dict[str, dict[str, int]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        return {what: number for about in self.about.values() for what, number in about.items()}

    def outcome(self, then: str = "") -> Report:
        counts = [counted(number, what) for what, number in self.counts.items()]
        lines = [f"✓ {self.what} is in {self.file}: {', '.join([*counts, f'{self.size / 1024:.1f} KiB are new'])}"]
        lines += [f"! without {part}: {why}" for part, why in self.left_out.items()]
        if still := [run_id for run_id, status in self.runs.items() if Status(status) in access.OPEN]:
            lines.append(f"! {', '.join(still)} had not ended: this is how it stood")
        if self.keys:
            lines.append(
                f"The keys are not in it, and nothing can be proved without them: keep {' and '.join(self.keys)} in "
                "another place too; or make backups --with-keys, and keep those secret"
            )
        lines.append(then or f"Anybody can check it: `agentic verify {self.file}`")
        return Report(asdict(self), "\n".join(lines), ok=self.left_out.keys() <= {access.GATEWAY})


async def backup(config: Path | None, place: str, *, with_keys: bool = False, keep: int | None = None) -> Report:
    """`keep`: number of backups that stay in the folder. Raises TryAgain, and Misconfigured for an unusable store."""
    series = Series(place, access.AGENT)
    if keep and not series.is_folder:
        raise Misconfigured(f"--keep keeps the newest backups of a folder, and {place} is a file")
    before = series.newest()
    async with access.open_reader(config) as reader:
        store, keys = reader.settings.store, reader.settings.keys_path()
        if reader.ring is None:
            raise Misconfigured(f"there is no file {keys}: start the agent once, which makes its keys")
        with series.new_archive(reader.ring, datetime.now(UTC)) as (name, archive):
            report = ArchiveReport(what=name, file=str(archive.path), backup=name)
            await _add_runs(reader, archive, report)
            await _add_ledger(reader.config, archive, report, with_keys=with_keys)
            await _add_artifacts(reader, archive, before, report)
            report.keys = add_store(archive, store, access.STORE_FILES, keys, with_keys=with_keys) + report.keys
            archive.fields |= {"about": report.counts, "left_out": report.left_out}
        report.size = archive.size
    if keep:
        series.keep_only(keep)
    return report.outcome()


async def export_all(config: Path | None, place: Path) -> Report:
    """Exports a store that is abandoned: no agent may run, and none starts on it again. Raises Misconfigured and
    TryAgain."""
    loaded, report = settings.load(config), ArchiveReport(what="every run", file=str(file_in(place, access.AGENT)))
    async with (
        access.exclusive_bus(loaded) as link,
        leaving(access.place_of(loaded, link)),
        access.open_reader(config) as reader,
    ):
        with open_writer(Path(report.file), reader.ring) as archive:
            await _add_runs(reader, archive, report)
            report.keys = add_store(archive, loaded.store, access.STORE_FILES, loaded.keys_path(), with_keys=False)
            archive.fields |= {"moved": True, "left_out": report.left_out}
    then = f"No agent begins on their store now: name the new one, then run `agentic restore {report.file}`"
    return report.outcome(then)


async def export(config: Path | None, name: str, place: Path | None = None) -> Report:
    """Raises NotDone for an unknown or tampered run, and Misconfigured for a file that exists."""
    async with access.open_reader(config) as reader:
        run_id = await reader.named(name)
        report = ArchiveReport(what=run_id, file=str(file_in(place, run_id)))
        runs, wanted = list[ArchivedRun](), [run_id]
        with open_writer(Path(report.file), reader.ring) as archive:
            for one in wanted:
                run, children = await _add_export(reader, one, archive)
                runs.append(run)
                wanted += [child for child in children if child not in wanted]
            archive.add_lines(access.RUNS, (run.model_dump_json().encode() for run in runs))
    report.size, report.about["agent"] = archive.size, {"runs": len(runs), "files": len(archive.files)}
    report.runs = {run.run_id: run.status.value for run in runs}
    report.left_out = {f"{run.run_id}/{path}": why for run in runs for path, why in run.left_out.items()}
    return report.outcome("" if reader.ring else "! it is not signed, for the file with the agent's keys is not there")


async def stored_runs(store: RunStore, *, only: str = "") -> AsyncIterator[ArchivedRun]:
    """All runs by id, or `only` that one, without positions. One may have later entries than its row says, for a log
    has no snapshots."""
    sql, after = load_queries()["archived"], ""
    while rows := await store.database.read(sql, (after, AT_ONCE, only or None)):
        for row in rows:
            yield value_of(ArchivedRun, row)
        after = rows[-1][0]


async def placed(store: RunStore, run: ArchivedRun) -> ArchivedRun:
    """The run with the positions of its entries. Raises Damaged, and NewerVersion."""
    return run.model_copy(update={"positions": (await store.positions(run.run_id))[: run.version]})


async def side_records(store: RunStore) -> list[SideRecord]:
    """Dismissals, halts and tombstones."""

    async def read(kind: type[Any], statement: str) -> list[Any]:
        return [value_of(kind, row) for row in await store.database.read(load_queries()[statement])]

    return [
        *(DismissalRecord(v=LEVEL, dismissal=one) for one in await read(Dismissal, "all_dismissals")),
        *(HaltRecord(v=LEVEL, by="", halt=one) for one in await read(Halt, "all_halts")),
        *(ArtifactTombstoneRecord(v=LEVEL, gone=one) for one in await read(ArtifactTombstone, "all_artifacts_gone")),
        *(TombstoneRecord(v=LEVEL, stone=one, version=0) for one in await read(Tombstone, "tombstones")),
    ]


async def _add_runs(reader: StoreReader, archive: ArchiveWriter, report: ArchiveReport) -> None:
    """A log has no snapshots, so a run may be deleted meanwhile: its tombstone is added."""
    runs, stones = list[ArchivedRun](), list[SideRecord]()
    heads = {run.run_id: run.head for run in ArchivedRuns(archive.base).all} if archive.base else {}
    async with reader.store.database.snapshot():
        async for run in stored_runs(reader.store):
            try:
                at = await placed(reader.store, run)
                await _add_run(reader, archive, at, is_in_base=heads.get(run.run_id) == run.head)
            except (ValueError, NewerVersion) as error:
                if stone := await reader.store.tombstone(run.run_id):
                    stones.append(TombstoneRecord(v=LEVEL, stone=stone, version=0))
                else:
                    report.left_out[run.run_id] = str(error)
            else:
                runs.append(at)
        beside = [*await side_records(reader.store), *stones]
        archive.add_lines(access.BESIDE, (f'["{record.subject}",{record.text}]'.encode() for record in beside))
    archive.add_lines(access.RUNS, (run.model_dump_json().encode() for run in runs))
    report.about["agent"] = {"runs": len(runs), "of them under way": sum(run.status in access.OPEN for run in runs)}


def _add_journal(archive: ArchiveWriter, run_id: str, entries: Iterable[Entry]) -> None:
    archive.add_lines(access.journal_name(run_id), map(_ENTRY.dump_json, entries))


async def _add_run(reader: StoreReader, archive: ArchiveWriter, run: ArchivedRun, *, is_in_base: bool) -> None:
    """Raises ValueError (its kind Damaged) for a tampered run, and NewerVersion."""
    if archive.base and is_in_base:
        archive.copy(access.journal_name(run.run_id), archive.base)
        return
    entries = (await reader.store.entries(run.run_id))[: run.version]
    ends = [(entry.seq, entry.hash) for entry in entries[-1:]] == [(run.version, run.head)]
    if flaw := flaw_in_chain(entries) or ("" if ends else f"its journal does not end with entry {run.version}"):
        raise ValueError(f"it is not as its agent left it: {flaw}")
    _add_journal(archive, run.run_id, entries)


async def _add_export(reader: StoreReader, run_id: str, archive: ArchiveWriter) -> tuple[ArchivedRun, Sequence[str]]:
    """Returns the run, and those of its children that the store has."""
    before = [run async for run in stored_runs(reader.store, only=run_id)]
    flaws, commits = await checked_journal(reader, run_id)
    if flaws:
        text = f"{run_id} is not as its agent left it ({flaws[0]}), so nothing was exported"
        raise NotDone(f"{text}: see `agentic verify {run_id}`", Exit.FAILED)
    run = await placed(reader.store, before[0])
    commits = commits[: run.version]
    left_out, gone = dict[str, str](), await reader.store.artifacts_gone(run_id)
    state, records = commits[-1].state, [commit.entry.record() for commit in commits]
    _add_journal(archive, run_id, (commit.entry for commit in commits))
    for path, page in pages(state, records).items():
        archive.add(f"{run_id}/{path}", page.encode())
    for path, artifact in kept_artifacts(records).items():
        content = str(gone) if gone else await _content(reader, run_id, artifact)
        if isinstance(content, bytes):
            archive.add(f"{run_id}/{path}", content)
        else:
            left_out[path] = content
    children = [child.run_id for child in state.children]
    there = [child for child in children if reader.store.version(child)]
    left_out |= {child: "there is no such run any more" for child in children if child not in there}
    return run.model_copy(update={"left_out": left_out}), there


async def _content(reader: StoreReader, run_id: str, artifact: RecordedArtifact) -> bytes | str:
    """Returns the content, or the reason that there is none."""
    try:
        content = reader.intact_copy(run_id, artifact) or await reader.artifact(run_id, artifact.path)
    except Failure as error:
        return str(error)
    return content if content is not None and artifact.is_brought_by(content) else access.NOWHERE


async def _add_ledger(config: Path | None, archive: ArchiveWriter, report: ArchiveReport, *, with_keys: bool) -> None:
    place = Path(report.file)
    with TemporaryDirectory(dir=place.parent, prefix=f"{place.name}{PART}-") as beside:
        file = f"{beside}/{access.GATEWAY}{SUFFIX}"
        answer = await access.run_gateway("backup", file, *(["--with-keys"] if with_keys else []), config=config)
        if answer["left_out"]:
            report.left_out[access.GATEWAY] = answer["left_out"]
            return
        with Archive.open(Path(file)) as ledger:
            archive.include(access.GATEWAY, ledger)
    report.about[access.GATEWAY], report.keys = answer["about"], answer["keys"]


async def _add_artifacts(
    reader: StoreReader, archive: ArchiveWriter, previous: Path | None, report: ArchiveReport
) -> None:
    """Copies those of the previous backup while the bus is away."""
    try:
        for key, digest in (await reader.hashes()).items():
            run_id, _, name = key.partition("/")
            if digest in archive.held:
                archive.files[f"{run_id}/{FOLDER}{name}"] = digest
            elif (content := await reader.artifact(run_id, f"{FOLDER}{name}")) is not None:
                archive.add(f"{run_id}/{FOLDER}{name}", content)
    except Failure as error:
        report.left_out[access.ARTIFACTS] = str(error)
        if previous and reader.ring:
            with suppress(Misconfigured), Archive.open(previous) as older:
                older.prove(reader.ring)
                for name in (name for name in older.manifest.files if f"/{FOLDER}" in name):
                    archive.copy(name, older)
                report.left_out[access.ARTIFACTS] += f". Those of {previous.name} are in it"
    else:
        report.about[access.ARTIFACTS] = {"artifacts": sum(f"/{FOLDER}" in name for name in archive.files)}


def file_in(place: Path | None, run_id: str) -> Path:
    if place is None or place.is_dir():
        return (place or Path()) / f"{run_id}{SUFFIX}"
    return place if place.suffix == SUFFIX else place.with_name(f"{place.name}{SUFFIX}")
