"""Parts of a text: as many whole lines as fit, or a piece of a line that is too long.

Lines end as in editors, with a line feed, a carriage return or both. Lines and characters count from 1.
"""

from dataclasses import dataclass

MOST_BYTES = 10_500
"""Limit of a shown part. With heading and ending it stays under the 12 KiB of a result: a longer answer would become an
artifact itself."""


@dataclass(frozen=True)
class Place:
    """A position: a line, and a character in it."""

    line: int = 1
    char: int = 1


@dataclass(frozen=True)
class Part:
    """The text, its last line, which may be cut, and the position of the rest, None at the end."""

    text: str
    last_line: int
    next: Place | None


def lines_of(text: str) -> list[str]:
    """Returns the lines without their ends; no empty line follows the last line end."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def size_of(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text.encode())


def part(lines: list[str], start: Place, *, most_lines: int) -> Part:
    """Returns the part that begins at `start`, which must exist."""
    first = lines[start.line - 1][start.char - 1 :]
    beginning = _beginning(first)
    if len(beginning) < len(first):
        return Part(beginning, start.line, Place(start.line, start.char + len(beginning)))
    shown, size = [first], size_of(first)
    for line in lines[start.line : start.line + most_lines - 1]:
        size += 1 + size_of(line)
        if size > MOST_BYTES:
            break
        shown.append(line)
    last = start.line + len(shown) - 1
    return Part("\n".join(shown), last, Place(last + 1) if last < len(lines) else None)


def _beginning(line: str) -> str:
    return line[:MOST_BYTES].encode()[:MOST_BYTES].decode(errors="ignore")
