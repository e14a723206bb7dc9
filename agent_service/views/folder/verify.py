"""Checks a run's journal, and its folder against it; names the first place that was changed."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, Protocol

from agent_service.history.artifacts import FILES, NamedArtifact, is_artifact_path, named_artifacts
from agent_service.run.journal import Entry, flaw_in_chain
from agent_service.run.moments import retell
from agent_service.views.folder.disk import TooLarge, Unsafe
from agent_service.views.folder.workspace import Listing
from agent_service.views.pages.files import pages_of

JOURNAL = "journal"

Kind = Literal["changed", "missing", "extra", "behind"]
"""`behind`: the file is as of an earlier entry, and is rendered again when it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """`place` is `journal` or a path below the run's folder; `line` counts from 1, null where there are none."""

    kind: Kind
    place: str
    line: int | None = None
    text: str

    def __str__(self) -> str:
        where = self.place if self.line is None else f"{self.place}:{self.line}"
        return f"{where}: {self.text}"


class Folder(Protocol):
    """Raises as a workspace does."""

    def files(self, run_id: str) -> Listing | None: ...

    def read(self, run_id: str, path: str) -> bytes | None: ...


def verify(
    entries: Sequence[Entry], workspace: Folder, run_id: str, *, stored: Mapping[str, str] | None = None
) -> list[Flaw]:
    """At most one flaw per place; only the journal's where that is flawed. A folder that is not there, or has no pages,
    is rendered when it is read. `stored`: SHA-256 by path of what the object store has. Raises IllegalName.
    """
    flaw = flaw_in_journal(entries, run_id)
    if flaw:
        return [Flaw(kind="changed", place=JOURNAL, text=flaw)]
    listing = workspace.files(run_id)
    if listing is None:
        return []
    records, lying = [entry.record() for entry in entries], {file.path for file in listing.files} | set(listing.foreign)
    artifacts = {one.path: one for one in named_artifacts(records) if is_artifact_path(one.path)}
    found = _read(workspace, run_id, [*([] if lying.isdisjoint(FILES) else FILES), *artifacts])
    flaws = [content for content in found.values() if isinstance(content, Flaw)]
    contents = {path: content for path, content in found.items() if isinstance(content, bytes)}
    flaws += _flaws_in_pages(entries, {name: contents[name] for name in FILES if name in contents})
    judged = ((artifacts[path], content) for path, content in contents.items() if path in artifacts)
    flaws += filter(None, (_flaw_in_artifact(one, (stored or {}).get(one.path), content) for one, content in judged))
    return flaws + [
        Flaw(kind="extra", place=path, text="is no file of this run") for path in sorted(lying - found.keys())
    ]


def flaw_in_journal(entries: Sequence[Entry], run_id: str) -> str | None:
    if not entries:
        return f"run {run_id} has no entries"
    if entries[0].run_id != run_id:
        return f"entry 1 belongs to run {entries[0].run_id}"
    return flaw_in_chain(entries) or _flaw_in_fold(entries)


def _flaw_in_fold(entries: Sequence[Entry]) -> str | None:
    seq = 0
    try:
        for moment in retell(entries):
            seq = moment.entry.seq
    except (ValueError, AssertionError, TypeError) as error:
        return f"entry {seq + 1} cannot be followed: {error}"
    return None


def _read(workspace: Folder, run_id: str, paths: Iterable[str]) -> dict[str, bytes | Flaw]:
    found: dict[str, bytes | Flaw] = {}
    for path in paths:
        try:
            content = workspace.read(run_id, path)
        except (Unsafe, TooLarge) as error:
            found[path] = Flaw(kind="changed", place=path, text=f"is not what was written: {error.strerror}")
        else:
            found[path] = Flaw(kind="missing", place=path, text="is not there") if content is None else content
    return found


def _flaws_in_pages(entries: Sequence[Entry], found: Mapping[str, bytes]) -> list[Flaw]:
    expected = _pages(entries) if found else {}
    differing = {name: content for name, content in found.items() if content != expected[name]}
    behind = _behind(entries, differing)
    return [behind.get(name) or _changed(name, expected[name], content) for name, content in differing.items()]


def _behind(entries: Sequence[Entry], found: Mapping[str, bytes]) -> dict[str, Flaw]:
    """Of those pages that are as they were at an earlier entry."""
    behind: dict[str, Flaw] = {}
    for seen in range(len(entries) - 1, 0, -1):
        if behind.keys() == found.keys():
            break
        then = _pages(entries[:seen])
        for name in [name for name in found.keys() - behind.keys() if found[name] == then[name]]:
            behind[name] = Flaw(kind="behind", place=name, text=f"is as of entry {seen} of {len(entries)}")
    return behind


def _pages(entries: Sequence[Entry]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in pages_of(entries).items()}


def _changed(name: str, expected: bytes, found: bytes) -> Flaw:
    line, text = _first_difference(expected, found)
    return Flaw(kind="changed", place=name, line=line, text=text)


def _first_difference(expected: bytes, found: bytes) -> tuple[int, str]:
    lines = enumerate(zip_longest(expected.splitlines(keepends=True), found.splitlines(keepends=True)), start=1)
    number, (wanted, there) = next((number, pair) for number, pair in lines if pair[0] != pair[1])
    if there is None:
        return number, "the journal has this line, the file does not"
    if wanted is None:
        return number, "the file has this line, the journal does not"
    return number, "the line is not what the journal says"


def _flaw_in_artifact(artifact: NamedArtifact, stored: str | None, found: bytes) -> Flaw | None:
    expected = artifact.sha256 or stored
    if expected in (None, hashlib.sha256(found).hexdigest()):
        return None
    text = f"is not the content that step {artifact.step} brought (entry {artifact.entry}): its hash differs"
    return Flaw(kind="changed", place=artifact.path, text=text)
