"""Is a file of exported runs what its agent wrote? Asked of the file alone, and of a public key to prove whose it is.

In this order: the signature, each file by the manifest, each journal, what the manifest says of each run, and its
children. Runs are not judged where a file was changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agent_service.archive.export_file import MANIFEST, SIGNATURE, SIGNED_AS, ExportedRun, ExportFile, Signature
from agent_service.core.state import RunState
from agent_service.history.artifacts import FILES
from agent_service.run.journal import Entry, rehearse
from agent_service.views.folder.names import is_run
from agent_service.views.folder.verify import Flaw, flaw_in_journal
from agent_service.views.folder.verify import verify as flaws_of
from groundwork.service.installed import installed_version
from groundwork.service.keys import verifies
from schemas.signing import signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    signature: Signature | None
    flaws: tuple[Flaw, ...]
    journals: dict[str, list[Entry]]


def judge(file: ExportFile, *, key: str | None = None) -> Judged:
    """`key`: the public half of the key that it has to be signed with. Raises Misconfigured where it cannot be read."""
    signature = file.signature()
    flaws = [*_of_signature(file, signature, key)] or [*_of_files(file)]
    journals = {} if flaws else {run.run_id: file.entries(run.run_id) for run in file.manifest.runs}
    for run in () if flaws else file.manifest.runs:
        flaws += [_below(run.run_id, flaw) for flaw in _of_run(file, run, journals[run.run_id])]
    return Judged(signature=signature, flaws=tuple(flaws), journals=journals)


def folded(entries: Sequence[Entry]) -> RunState:
    *_, (_, transition) = rehearse(entries)
    if transition.state is None:
        raise ValueError(f"nothing begins: {transition.ignored}")
    return transition.state


def _changed(place: str, text: str) -> Flaw:
    return Flaw(kind="changed", place=place, text=text)


def _extra(place: str, text: str) -> Flaw:
    return Flaw(kind="extra", place=place, text=text)


def _below(run_id: str, flaw: Flaw) -> Flaw:
    return replace(flaw, place=f"{run_id}/{flaw.place}")


def _of_signature(file: ExportFile, signature: Signature | None, key: str | None) -> Iterator[Flaw]:
    if signature is None:
        if key:
            yield Flaw(kind="missing", place=SIGNATURE, text="nobody has signed it")
        return
    if not verifies(signature.public, signature.signature, signed(SIGNED_AS, file.manifest_text)):
        yield _changed(MANIFEST, f"it is not what was signed with the key {signature.key}")
    elif key and key != signature.public:
        yield _changed(SIGNATURE, f"another key has signed it: {signature.key}, public {signature.public}")


def _of_files(file: ExportFile) -> Iterator[Flaw]:
    listed = file.manifest.files
    yield from (_extra(name, "is there more than once") for name, times in file.names.items() if times > 1)
    for name in sorted(file.names.keys() - listed.keys() - {MANIFEST, SIGNATURE}):
        yield _extra(name, "is no file of this export")
    for name, expected in listed.items():
        if name not in file.names:
            yield Flaw(kind="missing", place=name, text="is not there")
        elif file.hash_of(name) != expected:
            yield _changed(name, "is not what was exported: its hash differs")
    yield from _of_run_ids(file)


def _of_run_ids(file: ExportFile) -> Iterator[Flaw]:
    for run_id, times in file.run_ids.items():
        if not is_run(run_id):
            yield _changed(MANIFEST, f"{run_id[:40]!r} is no id of a run")
        elif times > 1:
            yield _changed(MANIFEST, f"the run {run_id} is there more than once")


def _of_run(file: ExportFile, run: ExportedRun, entries: list[Entry]) -> Iterator[Flaw]:
    if flaw := flaw_in_journal(entries, run.run_id):
        yield _changed("journal.jsonl", flaw)
        return
    yield from _of_manifest(file, run, entries)
    for found in flaws_of(entries, file.folder(run.run_id), run.run_id):
        if not _is_known(file, run, found):
            yield found


def _is_known(file: ExportFile, run: ExportedRun, flaw: Flaw) -> bool:
    """Files that the manifest says are missing, and pages of another version, which words things otherwise."""
    if flaw.kind == "missing":
        return flaw.place in run.left_out
    return flaw.place in FILES and file.manifest.program != installed_version()


def _of_manifest(file: ExportFile, run: ExportedRun, entries: list[Entry]) -> Iterator[Flaw]:
    state = folded(entries)
    journal = (len(entries), entries[-1].hash, state.status, state.wake_id, state.accepted_at)
    if journal != (run.version, run.head, run.status, run.wake_id, run.accepted_at):
        yield _changed(f"../{MANIFEST}", "it says something else of the run than the journal")
    for child in state.children:
        if child.run_id not in file.run_ids and child.run_id not in run.left_out:
            yield Flaw(kind="missing", place=f"../{child.run_id}", text=f"the run that step {child.step} started")
