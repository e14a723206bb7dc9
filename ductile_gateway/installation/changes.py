"""What becomes of files: shown to whoever decides, then carried out, or taken back where it must not stay."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ductile_gateway.calls.excerpts import masked
from ductile_gateway.installation import writing


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`before`, `after`: None where there is no such file. `secret`: for its owner alone. `program`: it is run.
    `theirs`: a file of Ductile's own, which keeps its owner and mode. `whole`: shown with all it says, but for
    secrets. `among_others`: its folder is not for its owner alone, whatever the file is."""

    path: Path
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    secret: bool = False
    program: bool = False
    theirs: bool = False
    whole: bool = False
    among_others: bool = False

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def back(self) -> "Change":
        return Change(
            path=self.path,
            before=self.after,
            after=self.before,
            secret=self.secret,
            program=self.program,
            theirs=self.theirs and self.before is not None,
        )


def shown(changes: Iterable[Change], *, hidden: Iterable[str] = ()) -> str:
    """For people: files of others and our settings line by line, the rest by name. `hidden`: secrets in them."""
    return masked("".join(_shown(change) for change in changes if change.changes), hidden)


def carry_out(changes: Sequence[Change], *, like: Path, within: Sequence[Path]) -> None:
    """In this order. What fails is raised after the ones before it are taken back. Raises OSError.

    `like`: whose owner new files have. `within`: folders that stay, whatever becomes of what is in them.
    """
    done: list[Change] = []
    try:
        for change in changes:
            done.append(change)
            _carry_out(change, like=like, within=within)
    except BaseException:
        take_back(done, like=like, within=within)
        raise


def take_back(changes: Sequence[Change], *, like: Path, within: Sequence[Path]) -> None:
    """As it was before them. Raises OSError."""
    for change in reversed(changes):
        _carry_out(change.back(), like=like, within=within)


def _carry_out(change: Change, *, like: Path, within: Sequence[Path]) -> None:
    if change.after is None:
        writing.take_away(change.path, within=within)
    elif not change.changes:
        return
    elif change.theirs:
        writing.change(change.path, change.after)
    else:
        writing.make(
            change.path,
            change.after,
            like=like,
            secret=change.secret,
            program=change.program,
            among_others=change.among_others or not change.secret,
        )


def _shown(change: Change) -> str:
    if not (change.theirs or change.whole):
        what = "new" if change.before is None else "taken away" if change.after is None else "changed"
        lines = len((change.after or change.before or b"").splitlines())
        return f"{what}: {change.path} ({'secret, not shown' if change.secret else f'{lines} lines'})\n"
    old, new = ("/dev/null" if text is None else str(change.path) for text in (change.before, change.after))
    around = 0 if change.theirs else 3  # what is beside it may be a secret
    difference = difflib.unified_diff(_lines(change.before), _lines(change.after), old, new, n=around)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in difference)


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "replace").splitlines(keepends=True)
