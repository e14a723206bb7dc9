"""A part of a text: as many whole lines as fit, or the beginning of the rest of one that alone is too long.

Lines end as editors count them, with a line feed, a carriage return or both. Lines and characters count from 1.
"""

from dataclasses import dataclass

MOST_BYTES = 10_500
"""Of a text as it is shown. With what stands above and below, it stays under the 12 KiB that a result may say: a longer
answer would become an artifact itself."""


@dataclass(frozen=True)
class Place:
    """Where to begin: a line, and a character of it."""

    line: int = 1
    char: int = 1


@dataclass(frozen=True)
class Part:
    """What was read; its last line, perhaps only the beginning of it; and where to read on, if anywhere."""

    text: str
    last_line: int
    next: Place | None


def lines_of(text: str) -> list[str]:
    """The lines without their ends. A text that ends with the end of a line has no empty line after it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def size_of(text: str) -> int:
    """In bytes of UTF-8."""
    return len(text.encode())


def part(lines: list[str], start: Place, *, most_lines: int) -> Part:
    """The part that begins at `start`, which must be there."""
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
