"""What the texts of many runs have in common, the tools on offer above all, is cut out of them and stored once.

What is left is valid JSON by itself, and the views of the database put it together again, to the letter: hashes
are over whole texts, so that a cut in the wrong place, or a changed common text, is found as any other change.
"""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

BEGINS = '"skills":['
SHORTEST = 512
"""Characters that are worth a row of their own."""

_JSON = json.JSONDecoder()


class Cut(NamedTuple):
    """A text without what it has in common with others: that one's digest, and how many characters come
    after it. Both are None where all is there."""

    rest: str
    digest: bytes | None = None
    after: int | None = None


class CommonTexts:
    """By the statements of queries.sql, in the transaction of a connection."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql

    def cut(self, text: str, connection: sqlite3.Connection) -> Cut:
        """The rest of a JSON; what was cut out is stored."""
        begin, end = _bounds(text)
        if end - begin < SHORTEST:
            return Cut(text)
        common = text[begin:end]
        digest = hashlib.sha256(common.encode()).digest()
        connection.execute(self._sql["add_common_text"], (digest, common))
        return Cut(text[:begin] + text[end:], digest, len(text) - end)


def _bounds(text: str) -> tuple[int, int]:
    """From where to where the items of the list go; equal where there is none, or the text is no JSON."""
    begin = text.rfind(BEGINS) + len(BEGINS)
    if begin < len(BEGINS):
        return 0, 0
    with contextlib.suppress(ValueError):
        _, end = _JSON.raw_decode(text, begin - 1)
        return begin, end - 1
    return 0, 0
