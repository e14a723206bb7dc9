"""Checks a run's journal, and its folder against it; names the first place that was changed."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Literal, Protocol

from agent_service.run.journal import RULES, Entry, digest_of, flaw_in_chain, rehearse
from agent_service.run.moments import Moment, retell
from agent_service.telling.folder.disk import TooLarge, Unsafe
from agent_service.telling.folder.workspace import Listing
from agent_service.telling.outputs import FILES, NamedArtifact, is_artifact_path, named_artifacts
from agent_service.telling.pages.trail import TRACE, broken_line, pages_of

JOURNAL = "journal"

Kind = Literal["changed", "missing", "extra", "behind"]
"""`behind`: the file is of an earlier entry; it may be about to be written."""


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


_Judge = Callable[[bytes], Flaw | None]


def verify(
    entries: Sequence[Entry], workspace: Folder, run_id: str, *, stored: Mapping[str, bytes] | None = None
) -> list[Flaw]:
    """At most one flaw per place; only the journal's where that is flawed. `stored`: artifacts by path, as the object
    store has them. Raises IllegalName.
    """
    flaw = flaw_in_journal(entries, run_id)
    if flaw:
        return [Flaw(kind="changed", place=JOURNAL, text=flaw)]
    listing, moments = workspace.files(run_id), tuple(retell(entries))
    pages = () if _put_away(moments, listing) else pages_of(moments)
    judges = _judges(moments, pages, stored or {})
    if listing is None:
        return [Flaw(kind="missing", place=".", text="the run has no folder")] if judges else []
    judged = [_judged(workspace, run_id, path, judge) for path, judge in judges.items()]
    lying = (*(file.path for file in listing.files), *listing.foreign)
    extra = [Flaw(kind="extra", place=path, text="is no file of this run") for path in lying if path not in judges]
    return [*filter(None, judged), *extra]


def flaw_in_journal(entries: Sequence[Entry], run_id: str) -> str | None:
    if not entries:
        return f"run {run_id} has no entries"
    if entries[0].run_id != run_id:
        return f"entry 1 belongs to run {entries[0].run_id}"
    return flaw_in_chain(entries) or _flaw_in_fold(entries)


def _flaw_in_fold(entries: Sequence[Entry]) -> str | None:
    seq = 0
    try:
        for entry, transition in rehearse(entries):
            seq, state = entry.seq, transition.state
            if state is None or transition.ignored or (state.run_id, state.version) != (entry.run_id, seq):
                return f"entry {seq} changes nothing by the rules of this version ({transition.ignored})"
            if entry.rules == RULES and digest_of(transition.effects) != entry.effects_digest:
                return f"entry {seq} leads to other effects than those that were noted with it"
    except (ValueError, AssertionError, TypeError) as error:
        return f"entry {seq + 1} cannot be followed: {error}"
    return None


def _put_away(moments: Sequence[Moment], listing: Listing | None) -> bool:
    lying = {file.path for file in listing.files} if listing else set()
    return moments[-1].after.final and lying.isdisjoint(FILES)


def _judges(
    moments: Sequence[Moment], pages: Iterable[tuple[str, str]], stored: Mapping[str, bytes]
) -> dict[str, _Judge]:
    judges: dict[str, _Judge] = {
        name: partial(_flaw_in_page, moments, name, expected.encode()) for name, expected in pages
    }
    for artifact in named_artifacts(moments):
        if is_artifact_path(artifact.path):
            judges[artifact.path] = partial(_flaw_in_artifact, artifact, stored.get(artifact.path))
    return judges


def _judged(workspace: Folder, run_id: str, path: str, judge: _Judge) -> Flaw | None:
    try:
        content = workspace.read(run_id, path)
    except (Unsafe, TooLarge) as error:
        return Flaw(kind="changed", place=path, text=f"is not what was written: {error.strerror}")
    return Flaw(kind="missing", place=path, text="is not there") if content is None else judge(content)


def _flaw_in_page(moments: Sequence[Moment], name: str, expected: bytes, found: bytes) -> Flaw | None:
    if found == expected:
        return None
    for seen in range(len(moments) - 1, 0, -1):
        if dict(pages_of(moments[:seen]))[name].encode() == found:
            text = f"is as of entry {seen} of {len(moments)}"
            return Flaw(kind="behind", place=name, text=text)
    line, what = _first_difference(expected, found)
    return Flaw(kind="changed", place=name, line=line, text=what + (_chain_says(found) if name == TRACE else ""))


def _first_difference(expected: bytes, found: bytes) -> tuple[int, str]:
    lines = enumerate(zip_longest(expected.splitlines(keepends=True), found.splitlines(keepends=True)), start=1)
    number, (wanted, there) = next((number, pair) for number, pair in lines if pair[0] != pair[1])
    if there is None:
        return number, "the journal has this line, the file does not"
    if wanted is None:
        return number, "the file has this line, the journal does not"
    return number, "the line is not what the journal says"


def _chain_says(found: bytes) -> str:
    broken = broken_line(found.decode(errors="replace"))
    return "; its chain of hashes was made anew" if broken is None else f"; line {broken} breaks the chain of hashes"


def _flaw_in_artifact(artifact: NamedArtifact, stored: bytes | None, found: bytes) -> Flaw | None:
    expected = artifact.sha256 or (hashlib.sha256(stored).hexdigest() if stored is not None else None)
    if expected in (None, hashlib.sha256(found).hexdigest()):
        return None
    text = f"is not the content that step {artifact.step} brought (entry {artifact.entry}): its hash differs"
    return Flaw(kind="changed", place=artifact.path, text=text)
