"""Search in a text, shown as by `grep`: `12: a match`, `13- a line beside it`, `--` between groups.

A long line is shown around its matches only: `12, from character 4810: …`.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from reading import MOST_BYTES, Place, size_of

LONGEST_LINE = 400
"""Characters of a line that is shown whole."""
AROUND = 120
"""Characters shown on either side of a match in a longer line."""
LONGEST_BESIDE = 200
"""Characters of a line that is shown beside a match."""


@dataclass(frozen=True)
class Found:
    """The matches that fit, as text, and the position to continue from, None if there are no more."""

    text: str
    next: Place | None


@dataclass(frozen=True)
class _Match:
    """A line or a part of one with a new match. `place`: a search from there finds it first."""

    row: str
    place: Place


def any_of(patterns: list[str]) -> re.Pattern[str]:
    """Compiles literal patterns, ignoring case; where several match at a position, the longest wins."""
    return re.compile("|".join(map(re.escape, sorted(patterns, key=len, reverse=True))), re.IGNORECASE)


def count(lines: list[str], wanted: re.Pattern[str]) -> int:
    """Counts the matches."""
    return sum(1 for line in lines for _ in wanted.finditer(line))


def search(lines: list[str], wanted: re.Pattern[str], start: Place, *, context: int) -> Found:
    """Returns matches from `start` on, as many as fit, with up to `context` lines before and after each."""
    shown: list[_Match] = []
    for match in _matches(lines, wanted, start):
        while not shown and context and not _fits(_text(lines, [match], context)):
            context -= 1
        if shown and not _fits(_text(lines, [*shown, match], context)):
            return Found(_text(lines, shown, context), match.place)
        shown.append(match)
    return Found(_text(lines, shown, context), None)


def _matches(lines: list[str], wanted: re.Pattern[str], start: Place) -> Iterator[_Match]:
    for number, line in enumerate(lines[start.line - 1 :], start.line):
        skipped = start.char - 1 if number == start.line else 0
        if len(line) > LONGEST_LINE:
            yield from _in_long_line(number, line, wanted, skipped)
        elif wanted.search(line, skipped):
            yield _Match(f"{number}: {line}", Place(number))


def _in_long_line(number: int, line: str, wanted: re.Pattern[str], skipped: int) -> Iterator[_Match]:
    end = 0
    for found in wanted.finditer(line, skipped):
        if found.end() > end:
            begin, end = max(0, found.start() - AROUND), found.end() + AROUND
            row = f"{number}, from character {begin + 1}: {line[begin:end]}{' …' if end < len(line) else ''}"
            yield _Match(row, Place(number, found.start() + 1))


def _fits(text: str) -> bool:
    return size_of(text) <= MOST_BYTES


def _text(lines: list[str], matches: list[_Match], context: int) -> str:
    rows: defaultdict[int, list[str]] = defaultdict(list)
    for match in matches:
        rows[match.place.line].append(match.row)
    near = sorted({number for line in rows for number in range(line - context, line + context + 1)})
    shown: list[str] = []
    last = 0
    for number in near:
        if 1 <= number <= len(lines):
            shown += ["--"] if context and last and number > last + 1 else []
            shown += rows.get(number) or [f"{number}- {_beside(lines[number - 1])}"]
            last = number
    return "\n".join(shown)


def _beside(line: str) -> str:
    return line if len(line) <= LONGEST_BESIDE else f"{line[:LONGEST_BESIDE]} …"
