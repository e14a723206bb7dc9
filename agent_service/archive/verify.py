"""Is an archive what its agent wrote? Asked of the archive alone, and of a public key to prove whose it is.

In this order: the signature, each file by the manifest, each journal, what is said of each run, and its children. Runs
are not judged where a file was changed.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

from agent_service.archive.runs import ARTIFACTS, BESIDE, JOURNAL, RUNS, ArchivedRun, Runs
from agent_service.core.state import RunState
from agent_service.history.artifacts import FILES, is_artifact_path, kept_artifacts
from agent_service.history.naming import is_whole
from agent_service.run.changes import as_decided
from agent_service.run.journal import Entry
from agent_service.views.folder.verify import Flaw, flaw_in_journal
from agent_service.views.pages import pages_of
from groundwork.archive.format import MANIFEST, SIGNATURE, Archive
from groundwork.service.installed import installed_version
from schemas.values import replace


def judge(archive: Archive, *, key: str | None = None) -> Sequence[Flaw]:
    """`key`: the public half of the key that it has to be signed with. Raises Misconfigured where it cannot be read."""
    flaws = [*_of_signature(archive, key)] or [changed(name, text) for name, text in archive.flaws()]
    if flaws:
        return flaws
    runs = Runs(archive)
    known = Counter(run.run_id for run in runs.all)
    for run_id, times in known.items():
        if not is_whole(run_id):
            flaws.append(changed(RUNS, f"{run_id[:40]!r} is no id of a run"))
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
    state = as_decided(entries)
    yield from _of_line(run, entries, state)
    yield from () if BESIDE in runs.archive.manifest.files else _of_children(run, state, known)
    yield from _of_files(runs, run, entries)


def _of_files(runs: Runs, run: ArchivedRun, entries: Sequence[Entry]) -> Iterator[Flaw]:
    """Artifacts and pages by the journal, but for those that are said to be missing, and pages of another version."""
    manifest, there = runs.archive.manifest, runs.files_of(run.run_id)
    stay = manifest.moved or bool(run.artifacts_gone) or ARTIFACTS in manifest.left_out
    wanted: dict[str, str | None] = dict.fromkeys(FILES) if not there.keys().isdisjoint(FILES) else {}
    if wanted and manifest.program == installed_version():
        wanted |= {name: hashlib.sha256(page.encode()).hexdigest() for name, page in pages_of(entries).items()}
    kept = kept_artifacts(entry.record() for entry in entries)
    wanted |= {path: artifact.sha256 for path, artifact in kept.items()}
    for path, digest in wanted.items():
        if path not in there and not stay and path not in run.left_out:
            yield Flaw(kind="missing", place=path, text="is not there")
        elif digest not in (None, there.get(path, digest)):
            yield changed(path, "is not what the journal says")
    for path in there.keys() - wanted.keys():
        if not is_artifact_path(path):
            yield Flaw(kind="extra", place=path, text="is no file of this run")


def _of_line(run: ArchivedRun, entries: Sequence[Entry], state: RunState) -> Iterator[Flaw]:
    journal = (len(entries), entries[-1].hash, state.status, state.wake_id, state.accepted_at)
    if journal != (run.version, run.head, run.status, run.wake_id, run.accepted_at):
        yield changed(f"../{RUNS}", "it says something else of the run than the journal")


def _of_children(run: ArchivedRun, state: RunState, known: Counter[str]) -> Iterator[Flaw]:
    """Of an export, which has a run with all that it started."""
    for child in state.children:
        if child.run_id not in known and child.run_id not in run.left_out:
            yield Flaw(kind="missing", place=f"../{child.run_id}", text=f"the run that step {child.step} started")
