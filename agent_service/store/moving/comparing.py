"""Whether two databases hold the same runs: row by row, entry by entry, whatever order they were stored in."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote

from agent_service.store.sql.queries import load_queries
from groundwork.sqlite.file import SqliteFile

COMPARED = "compared_"


async def differences(one: SqliteFile, other: SqliteFile) -> list[str]:
    return await asyncio.to_thread(_differences, one.path, other.path)


def _differences(one: Path, other: Path) -> list[str]:
    statements = {name: sql for name, sql in load_queries("moving.sql").items() if name.startswith(COMPARED)}
    with _reading(one) as ours, _reading(other) as theirs:
        found = (_first(ours, theirs, name.removeprefix(COMPARED), sql) for name, sql in statements.items())
        return [text for text in found if text]


def _first(ours: sqlite3.Connection, theirs: sqlite3.Connection, table: str, statement: str) -> str:
    for row, its_copy in zip_longest(ours.execute(statement), theirs.execute(statement)):
        if row != its_copy:
            about = row or its_copy
            what = "is missing" if its_copy is None else "was never there" if row is None else "is another"
            return f"{table}: {' '.join(map(_word, about[:2]))} {what}"
    return ""


def _word(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes
        yield connection
