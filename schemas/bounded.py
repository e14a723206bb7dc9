"""Bounds for what others send: buffers, lenient JSON, storable texts, and long ones cut with a marker."""

import json
from collections.abc import Iterator
from typing import Any

LARGEST_JSON = 16 << 20
"""Bytes of a JSON answer, or of a line of an event stream."""
LARGEST_FILE = 64 << 20


class TooLong(Exception):
    """The answer exceeds its bound."""


class Bounded(bytearray):
    """A buffer of at most `most` bytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._searched = 0

    def add(self, piece: bytes) -> None:
        """Raises TooLong."""
        self.extend(piece)
        if len(self) > self._most:
            raise TooLong(f"more than {self._most / (1 << 20):.3g} MiB")

    def lines(self) -> Iterator[bytes]:
        begin = 0
        while (end := self.find(b"\n", max(begin, self._searched))) >= 0:
            yield bytes(self[begin:end])
            begin = end + 1
        del self[:begin]
        self._searched = len(self)


def json_object(content: bytes) -> dict[str, Any] | None:
    """None for content that is no JSON object."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def storable(text: str) -> str:
    """Without lone surrogates and NUL, which no store takes."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def clipped(text: str, length: int, rest: str = "") -> str:
    """At most `length` characters of `text`, and a marker if there are more. `rest`: location of the full text."""
    return text if len(text) <= length else with_cut_marker(text[:length], len(text), rest)


def with_cut_marker(head: str, length: int, rest: str = "") -> str:
    """`head` and the marker of a text of `length` characters."""
    return f"{head}\n[cut: {len(head)} of {length} characters are shown{rest}]"
