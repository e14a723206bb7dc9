"""A folder of Markdown pages, and their sections: from one heading to the next, in pieces of readable size."""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_PAGES = 20_000
MOST_BYTES = 1024 * 1024
"""Bytes read of one page."""
SECTION_CHARS = 2_000
"""Longest section that is not cut; a longer one is cut between lines where possible."""
SETTLED_NS = 2_000_000_000
"""Age of a change from which the next one is sure to get another time."""

HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t#]*$")
FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?\n)---[ \t]*(?:\r?\n|$)", re.DOTALL)
MARKED = re.compile(r"^untrusted[ \t]*:(?![ \t]*(?:false|no)?[ \t]*\r?$)", re.MULTILINE | re.IGNORECASE)
FENCE = re.compile(r"[ \t]{0,3}(```|~~~)")


@dataclass(frozen=True)
class Stamp:
    """Identifies the content of a page. `changed` is 0 if a later change could have the same time."""

    changed: int
    size: int
    inode: int


@dataclass(frozen=True)
class Section:
    """`heading`: with its parents, outermost first. Lines count from 1; `to_line` is included."""

    heading: str
    from_line: int
    to_line: int
    text: str


def pages_in(folder: Path) -> dict[str, Stamp]:
    """Returns the pages below the folder by relative path. It follows no links: they could lead anywhere."""
    found: dict[str, Stamp] = {}
    for path in _files(folder):
        if len(found) >= MOST_PAGES:
            break
        with suppress(OSError, UnicodeEncodeError):  # gone meanwhile; or a name that is no text
            status, name = path.lstat(), path.relative_to(folder).as_posix()
            if stat.S_ISREG(status.st_mode) and name.encode():
                found[name] = _stamp(status)
    return found


def read(folder: Path, page: str) -> tuple[str, Stamp] | None:
    """Returns the text of a page and its stamp before the reading; None if it cannot be read."""
    try:
        opened = os.open(folder / page, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            stamp = _stamp(os.fstat(file.fileno()))
            return file.read(MOST_BYTES).decode("utf-8", "replace").replace("\0", "\ufffd"), stamp
    except OSError:
        return None


def is_marked(folder: Path, page: str) -> bool:
    """Returns True if the front matter marks a page as untrusted: `untrusted: run_…` or `true`.

    A page that cannot be read any more counts as marked.
    """
    found = read(folder, page)
    matter = FRONT_MATTER.match(found[0]) if found else None
    return found is None or (matter is not None and MARKED.search(matter[1]) is not None)


def sections(text: str) -> Iterator[Section]:
    """Yields the sections that have text below their heading."""
    above: dict[int, str] = {}
    began, within, fenced = 1, list[str](), False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= FENCE.match(line) is not None
        found = None if fenced else HEADING.match(line)
        if found:
            yield from _pieces(" / ".join(above.values()), began, within)
            depth = len(found[1])
            above = {level: name for level, name in above.items() if level < depth} | {depth: found[2][:200]}
            began, within = number + 1, []
        else:
            within.append(line)
    yield from _pieces(" / ".join(above.values()), began, within)


def _pieces(heading: str, began: int, lines: list[str]) -> Iterator[Section]:
    piece, size = list[str](), 0
    for number, line in enumerate(_short(lines), began):
        if piece and size + len(line) > SECTION_CHARS:
            yield from _piece(heading, number - len(piece), piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line) + 1
    yield from _piece(heading, began + len(lines) - len(piece), piece)


def _piece(heading: str, began: int, lines: list[str]) -> Iterator[Section]:
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if filled:
        text = "\n".join(lines[filled[0] : filled[-1] + 1])
        yield Section(heading, began + filled[0], began + filled[-1], text)


def _short(lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield line if len(line) <= SECTION_CHARS else f"{line[:SECTION_CHARS]} […]"


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if name.lower().endswith(".md") and name[0] != ".")


def _stamp(status: os.stat_result) -> Stamp:
    settled = time.time_ns() - status.st_mtime_ns > SETTLED_NS
    return Stamp(status.st_mtime_ns if settled else 0, status.st_size, status.st_ino)
