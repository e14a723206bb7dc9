"""Verifies the folder of a run against its journal; reports the first change in each file."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Literal, Protocol

from agent_service.history.results import FILES, kept_artifacts
from agent_service.run.journal import Commit
from agent_service.views.pages import pages
from agent_service.views.workspace.files import Listing, TooLarge, Unsafe
from agent_service.views.workspace.rendering import MAX_ARTIFACTS, MAX_TOTAL
from schemas.values import dataclass

JOURNAL = "journal"

Kind = Literal["changed", "missing", "extra", "behind"]
"""`behind`: the file has the state of an earlier entry; the next read renders it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """`place` is `journal` or a path in the run's folder; `line` counts from 1 and is null for files without lines."""

    kind: Kind
    place: str
    line: int | None = None
    text: str

    def __str__(self) -> str:
        where = self.place if self.line is None else f"{self.place}:{self.line}"
        return f"{where}: {self.text}"


class Folder(Protocol):
    def files(self, run_id: str) -> Listing | None: ...

    def read(self, run_id: str, path: str) -> bytes | None: ...


def verify(
    commits: Sequence[Commit], workspace: Folder, run_id: str, *, stored: Mapping[str, str] | None = None
) -> list[Flaw]:
    """At most one flaw per place. Missing folders and pages are no flaw.

    `commits`: the whole journal. `stored`: SHA-256 of the artifacts in the object store, by path. Raises IllegalName.
    """
    listing = workspace.files(run_id)
    if listing is None:
        return []
    on_disk = {file.path for file in listing.files} | set(listing.foreign)
    records = [commit.entry.record() for commit in commits]
    artifacts = kept_artifacts(records)
    total = sum(one.size or 0 for one in artifacts.values())
    all_copied = len(artifacts) <= MAX_ARTIFACTS and total <= MAX_TOTAL  # others stay in their store alone
    paths = [*([] if on_disk.isdisjoint(FILES) else FILES), *artifacts]
    rendered, flaws = cache(lambda seen: pages(commits[seen - 1].state, records[:seen])), list[Flaw]()
    for path in paths:
        try:
            found = workspace.read(run_id, path)
        except (Unsafe, TooLarge) as error:
            flaws.append(Flaw(kind="changed", place=path, text=f"is not what was written: {error.strerror}"))
            continue
        if found is None and path in artifacts and not all_copied:
            continue
        if found is None:
            flaws.append(Flaw(kind="missing", place=path, text="is not there"))
        elif artifact := artifacts.get(path):
            if (artifact.sha256 or (stored or {}).get(path)) not in (None, hashlib.sha256(found).hexdigest()):
                brought = f"that step {artifact.step} brought (entry {artifact.entry})"
                text = f"is not the content {brought}: its hash differs"
                flaws.append(Flaw(kind="changed", place=path, text=text))
        else:
            flaws += _flaw_in_page(path, found, rendered, len(records))
    strange = sorted(on_disk.difference(paths))
    return flaws + [Flaw(kind="extra", place=path, text="is not a file of this run") for path in strange]


def _flaw_in_page(name: str, found: bytes, rendered: Callable[[int], Mapping[str, str]], newest: int) -> Iterator[Flaw]:
    """`rendered` gives the pages as of an entry."""
    expected = rendered(newest)[name].encode()
    if found == expected:
        return
    if seen := next((seen for seen in range(newest - 1, 0, -1) if found == rendered(seen)[name].encode()), None):
        yield Flaw(kind="behind", place=name, text=f"is as of entry {seen} of {newest}")
        return
    lines = enumerate(zip_longest(expected.splitlines(keepends=True), found.splitlines(keepends=True)), start=1)
    number = next(number for number, (wanted, there) in lines if wanted != there)
    yield Flaw(kind="changed", place=name, line=number, text="the line is not what the journal says")
