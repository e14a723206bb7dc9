"""`agentic verify`: compares rows and folders of runs with their journals, whose entries are decided again; or
checks an archive.

Read-only, and the agent may run. Pages may be older than their journal, because reading renders them: this is reported
as no flaw. The bus is needed only for artifacts that have no folder, or no hash in the journal.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from agent_service.archive import access
from agent_service.archive.access import ArchivedRun, ArchivedRuns, Report, StoreReader
from agent_service.bus.buckets import key_of
from agent_service.bus.reading import SignedEnding, signed_endings
from agent_service.errors import Damaged, NewerVersion
from agent_service.history.results import FILES, RecordedArtifact, is_artifact_path, kept_artifacts
from agent_service.history.text import is_run_id, one_line
from agent_service.run.journal import Commit, followed
from agent_service.views.pages import JOURNAL, Flaw
from agent_service.views.pages import verify as flaws_of
from groundwork.archive.format import MANIFEST, SIGNATURE, Archive
from groundwork.service.errors import Misconfigured, TryAgain
from groundwork.service.program import installed_version
from groundwork.sqlite.file import microseconds
from schemas.status import counted

ROW, BUS = "row", "bus"
LOOKS = 5
LOOK_AGAIN_S = 0.5
AT_ONCE = 500
SHOWN = 20
REMEDY = (
    "The journal is whole: delete the file if it is there. Pages, and artifacts that the bus has, are written anew "
    "when the run's files are read; take others from a backup"
)


@dataclass(slots=True, kw_only=True)
class RunCheck:
    """`unchecked`: artifacts without anything to compare with. `behind`: pages as of an earlier entry."""

    run_id: str
    entries: int
    pages: int = 0
    artifacts: int = 0
    unchecked: list[str] = field(default_factory=list)
    behind: list[Flaw] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield from (f"✗ {one_line(str(flaw), 500)}" for flaw in self.flaws)
        if not self.flaws:
            unchecked = f" ({len(self.unchecked)} of them unproved: the bus did not tell)" if self.unchecked else ""
            pages = counted(self.pages, "pages") if self.pages else "no pages (they are written when asked for)"
            counts = f"{counted(self.entries, 'entries')}, {pages}, {counted(self.artifacts, 'artifacts')}{unchecked}"
            yield f"✓ {self.run_id} is as it was written: {counts}"
        elif {flaw.place for flaw in self.flaws}.isdisjoint((JOURNAL, ROW)):
            yield REMEDY
        yield from (f"! {flaw}, and is rendered when it is read" for flaw in self.behind)


def changed(place: str, text: str) -> Flaw:
    return Flaw(kind="changed", place=place, text=text)


async def verify(name: str, config: Path | None) -> Report:
    async with access.open_reader(config) as reader:
        check = await _check_run(reader, await reader.named(name))
    facts = asdict(check) | {"config": str(reader.config or "")}
    return Report(facts, "\n".join(check.lines()), ok=not check.flaws)


async def verify_all(config: Path | None, *, against_bus: bool) -> Report:
    """Raises Misconfigured without a readable store, or keys for the bus, and Failure if that is away."""
    async with access.open_reader(config) as reader:
        ends = list[SignedEnding]()
        if against_bus:
            if reader.ring is None:
                raise Misconfigured(f"there is no file {reader.settings.keys_path()}, by which endings are proved")
            async with access.bus_at_hand(reader.settings) as link:
                ends = await signed_endings(link, reader.ring)
        flaws = [flaw for end in ends if (flaw := await _ending_flaw(reader, end))]
        runs, before, flawed, newer = 0, None, list[RunCheck](), list[NewerVersion]()
        while lines := await reader.store.runs(limit=AT_ONCE, before=before):
            for line in lines:
                try:
                    check = await _check_run(reader, line.run_id)
                    runs += 1
                    flawed += [check] if check.flaws else []
                except access.RunDeleted:
                    pass
                except NewerVersion as error:
                    newer.append(error)
            before = lines[-1].run_id
    facts = {"config": str(reader.config or ""), "runs": runs, "ends": len(ends)}
    facts["left_out"] = [error.run_id for error in newer]
    facts |= {"flaws": [asdict(flaw) for flaw in flaws], "flawed": [asdict(check) for check in flawed]}
    by = f"; so say {counted(len(ends), 'endings')} on the bus" if ends else ""
    text = [f"✗ {flaw}" for flaw in flaws] + [f"{line}  ({run.run_id})" for run in flawed for line in run.lines()]
    whole = [f"✓ as written: {counted(runs, 'runs')}{by}"]
    return Report(facts, "\n".join([*(text or whole), *(f"! not checked: {error}" for error in newer)]), ok=not text)


async def _ending_flaw(reader: StoreReader, end: SignedEnding) -> Flaw | None:
    try:
        entries = await reader.store.entries(end.run_id, after=end.seq - 1, limit=1)
    except (Damaged, NewerVersion):  # as the check of the run tells
        return None
    if (entries and entries[0].hash == end.head) or await reader.store.tombstone(end.run_id):
        return None
    what = "another entry is there now" if entries else "it is not there any more"
    text = f"{end.subject} of {end.run_id} was told with entry {end.seq}: {what}"
    return Flaw(kind="changed" if entries else "missing", place=BUS, text=text)


async def _check_run(reader: StoreReader, run_id: str) -> RunCheck:
    """Looks again for missing files, because an agent at work writes them within a second or two."""
    for look in range(LOOKS):
        if look:
            await asyncio.sleep(LOOK_AGAIN_S)
            reader.stored = None
        check = await _check_once(reader, run_id)
        if not check.flaws or any(flaw.kind != "missing" for flaw in check.flaws):
            break
    return check


async def _check_once(reader: StoreReader, run_id: str) -> RunCheck:
    flaws, commits = await checked_journal(reader, run_id)
    check = RunCheck(run_id=run_id, entries=len(commits), flaws=flaws)
    if flaws:
        return check
    are_gone = bool(await reader.store.artifacts_gone(run_id))
    named = {} if are_gone else kept_artifacts(commit.entry.record() for commit in commits)
    folder = await asyncio.to_thread(reader.workspace.files, run_id)
    on_bus = [path for path, one in named.items() if folder is None or one.sha256 is None]
    stored: dict[str, str] | None = {}
    if on_bus:
        try:
            hashes = await reader.hashes()
            stored = {path: hashes[key] for path in on_bus if (key := key_of(run_id, path)) in hashes}
        except TryAgain:  # the bus does not answer
            stored = None
    check.artifacts = len(named)
    check.unchecked = [path for path in on_bus if path not in (stored or {})]
    if folder is None and stored is not None:
        check.unchecked, check.flaws = [], list(_flaws_on_bus(named, stored))
    elif folder is not None:
        check.pages = len({file.path for file in folder.files} & set(FILES))
        for flaw in await asyncio.to_thread(lambda: flaws_of(commits, reader.workspace, run_id, stored=stored)):
            if not (are_gone and flaw.kind == "missing" and is_artifact_path(flaw.place)):
                (check.behind if flaw.kind == "behind" else check.flaws).append(flaw)
    return check


async def checked_journal(reader: StoreReader, run_id: str) -> tuple[list[Flaw], list[Commit]]:
    """Returns flaws of the entries, or else of the run's row; and the entries, decided again. A run that went on
    meanwhile is read again, because a log has no snapshots."""
    while True:
        version = reader.store.version(run_id)
        flaws, commits = await _flaws_in(reader, run_id)
        if not flaws or reader.store.version(run_id) == version:
            return flaws, commits


async def _flaws_in(reader: StoreReader, run_id: str) -> tuple[list[Flaw], list[Commit]]:
    try:
        async with reader.store.database.snapshot():
            row, entries = await reader.store.row(run_id), await reader.entries(run_id)
            run = await reader.store.load(run_id)
    except Damaged as error:
        cause = f" cannot be read: {str(error.__cause__).splitlines()[0]}" if error.__cause__ else ""
        return [changed(JOURNAL, f"{error.what}{cause}")], []
    if run is None:
        return [changed(JOURNAL, "the run has entries and no state")], []
    try:
        commits = followed(entries, run_id)
    except ValueError as error:
        return [changed(JOURNAL, str(error))], []
    version = run.state.version
    if [entry.hash for entry in entries[version - 1 : version]] != [run.head]:
        return [changed(JOURNAL, f"entry {version} is not there as the run's state was made with it")], commits
    state = commits[-1].state
    due_at = microseconds(state.due_at) if state.due_at else None
    columns = "version", "status", "due_at", "summary", "goal"
    expected = state.version, state.status.value, due_at, str(state.summary), state.brief.goal
    pairs = {part.name: (getattr(run.state, part.name), getattr(state, part.name)) for part in fields(state)}
    pairs |= dict(zip(columns, zip(row, expected, strict=True), strict=True))
    differing = [name for name, (found, given) in pairs.items() if found != given]
    return [changed(ROW, f"its {name} is not what its journal gives") for name in differing], commits


def _flaws_on_bus(named: Mapping[str, RecordedArtifact], stored: Mapping[str, str]) -> Iterator[Flaw]:
    for path, artifact in named.items():
        held = stored.get(path)
        if not held or held != (artifact.sha256 or held):
            text = f"the run has no folder, and the bus has not what step {artifact.step} brought"
            yield Flaw(kind="changed" if held else "missing", place=path, text=text)


def verify_file(path: Path, key: str | None = None) -> Report:
    """Checks signature, then files by the manifest, then runs, and stops after the first with flaws. `key`: public half
    of the key that must have signed it. Raises Misconfigured for what cannot be read."""
    with Archive.open(path) as archive:
        by, manifest, runs = archive.signature, archive.manifest, list[ArchivedRun]()
        flaws = [*_signature_flaws(archive, key)] or [changed(name, text) for name, text in archive.flaws()]
        if not flaws:
            archived = ArchivedRuns(archive)
            known = Counter(run.run_id for run in archived.all)
            wrong = (run_id for run_id, times in known.items() if times > 1 or not is_run_id(run_id))
            flaws = [
                changed(access.RUNS, f"{it[:40]!r} is not an id of a run, or is there more than once") for it in wrong
            ]
            for run in () if flaws else archived.all:
                checked, found = _checked_run(archived, run, known)
                runs.append(checked)
                flaws += found
    facts: dict[str, Any] = {"file": str(path), "at": f"{manifest.at:%Y-%m-%dT%H:%M:%SZ}", "program": manifest.program}
    facts |= {"key": by.key if by else "", "public": by.public if by else ""}
    facts["runs"] = [] if flaws else [run.model_dump(mode="json", exclude={"positions"}) for run in runs]
    lines = (f"✗ {one_line(str(flaw), 500)}" for flaw in flaws) if flaws else _archive_lines(path, archive, runs, key)
    return Report(facts | {"flaws": [asdict(flaw) for flaw in flaws]}, "\n".join(lines), ok=not flaws)


def _signature_flaws(archive: Archive, key: str | None) -> Iterator[Flaw]:
    by = archive.signature
    if by is None:
        if key:
            yield Flaw(kind="missing", place=SIGNATURE, text="it is not signed")
    elif not archive.is_signed():
        yield changed(MANIFEST, f"it is not what was signed with the key {by.key}")
    elif key and key != by.public:
        yield changed(SIGNATURE, f"another key has signed it: {by.key}, public {by.public}")


def _checked_run(
    archived: ArchivedRuns, run: ArchivedRun, known: Collection[str]
) -> tuple[ArchivedRun, Sequence[Flaw]]:
    """A backup is whole without artifacts that the bucket had lost: the run that is returned says that they are left
    out."""
    manifest, found = archived.archive.manifest, list[Flaw]()
    is_backup, pages_differ = access.BESIDE in manifest.files, manifest.program != installed_version()
    try:
        commits = access.commits_of(run, archived.entries(run.run_id))
    except ValueError as error:
        return run, [changed(f"{run.run_id}/{JOURNAL}", str(error))]
    stay = manifest.moved or bool(run.artifacts_gone) or access.ARTIFACTS in manifest.left_out
    named = () if stay else kept_artifacts(commit.entry.record() for commit in commits)
    absent = [path for path in named if path not in run.left_out and f"{run.run_id}/{path}" not in manifest.files]
    if is_backup:
        run = run.model_copy(update={"left_out": run.left_out | dict.fromkeys(absent, access.NOWHERE)})
    else:  # an export has all children and artifacts
        for child in commits[-1].state.children:
            if child.run_id not in known and child.run_id not in run.left_out:
                text = f"the run that step {child.step} started"
                found.append(Flaw(kind="missing", place=f"../{child.run_id}", text=text))
        found += [Flaw(kind="missing", place=path, text="is not there") for path in absent]
    for one in flaws_of(commits, archived, run.run_id):
        if not ((pages_differ and one.place in FILES) or (one.kind != "changed" and is_artifact_path(one.place))):
            found.append(one)
    return run, [replace(flaw, place=f"{run.run_id}/{flaw.place}") for flaw in found]


def _archive_lines(path: Path, archive: Archive, runs: Sequence[ArchivedRun], key: str | None) -> Iterator[str]:
    by, manifest = archive.signature, archive.manifest
    made = f"made {manifest.at:%Y-%m-%d %H:%M:%S} UTC by version {manifest.program}"
    yield f"✓ {path} is as it was written; {made}"
    if manifest.program != installed_version():
        yield "! its pages were not held against the journals: another version has written them"
    artifacts = Counter(name.partition("/artifacts/")[0] for name in manifest.files if "/artifacts/" in name)
    for run in runs[:SHOWN]:
        counts = f"{counted(run.version, 'entries')}, {counted(artifacts[run.run_id], 'artifacts')}"
        yield f"  {run.run_id}  {run.status}, {counts}"
    if len(runs) > SHOWN:
        yield f"  and {len(runs) - SHOWN} more runs"
    left = {f"{run.run_id}/{name}": why for run in runs for name, why in run.left_out.items()}
    yield from (f"! without {name}: {why}" for name, why in (manifest.left_out | left).items())
    if not by:
        yield "! it is not signed: anyone who had it may have changed it"
    elif key:
        yield f"signed with the key {by.key}, as you asked"
    else:
        yield (
            f"signed with the key {by.key}, public {by.public}: compare that with what `agentic keys list` says "
            "where it was made; or give it as --key"
        )
