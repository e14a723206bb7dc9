"""Files of earlier versions: beside `ledger.db` the gateway used to have a database for each of three other records.

What they hold is copied into the ledger's file, each in one transaction, and then the file is removed. A start that was
killed in between does the same again; since nothing else is done before it is over, that changes nothing that was
copied. A receipt without an intent is left behind: it is of a call that may be repeated.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile


@dataclass(frozen=True, slots=True)
class _Copy:
    """A statement for each row of another. `since`: the version of the file from which on that can be asked."""

    select: str
    write: str
    since: int = 1


_RECEIPT = """
UPDATE calls SET begun_at = ?2, job_id = ?3, way = ?4, newest = ?5 WHERE key = ?1 AND answer IS NULL
"""
_COPIES: Mapping[str, tuple[_Copy, ...]] = {
    "receipts.db": (
        _Copy("SELECT key, begun_at, job_id, way, NULL FROM receipts", _RECEIPT),
        _Copy("SELECT key, begun_at, job_id, way, newest FROM receipts", _RECEIPT, since=3),
        _Copy("SELECT key, job_id, pipeline, since FROM overdue", "INSERT OR IGNORE INTO overdue VALUES (?, ?, ?, ?)"),
    ),
    "outbox.db": (
        _Copy(
            "SELECT position, target, lane, key, run_id, type, url, body, accepted_at, tries, due_at, why, outcome, "
            "settled_at FROM deliveries",
            "INSERT OR IGNORE INTO outbox (position, target, lane, key, run_id, type, url, body, accepted_at, tries, "
            "due_at, why, outcome, settled_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ),
    ),
    "deliveries.db": (
        _Copy(
            "SELECT source, identity, event_key, received_at FROM deliveries",
            "INSERT OR IGNORE INTO received VALUES (?, ?, ?, ?)",
        ),
    ),
}


async def carry_over(file: SqliteFile) -> None:
    """Take into the gateway's open file what lies beside it. Raises Misconfigured where that cannot be read, and leaves
    it there."""
    for name, copies in _COPIES.items():
        if (old := file.path.with_name(name)).exists():
            await file.write(partial(_copy, old=old, copies=copies))
            for leftover in (*(old.with_name(name + suffix) for suffix in ("-wal", "-shm")), old):
                leftover.unlink(missing_ok=True)


def _copy(connection: sqlite3.Connection, *, old: Path, copies: tuple[_Copy, ...]) -> None:
    with contextlib.closing(sqlite3.connect(old)) as before:
        ((version,),) = _rows(before, old, "PRAGMA user_version")
        for copy in copies:
            if copy.since <= version:
                connection.executemany(copy.write, _rows(before, old, copy.select))


def _rows(before: sqlite3.Connection, old: Path, select: str) -> Iterator[tuple[Any, ...]]:
    try:
        yield from before.execute(select)
    except sqlite3.Error as error:
        raise Misconfigured(
            f"{old}, which an earlier version has left, cannot be taken over ({error}): repair it, or put it away, "
            "and with it what it remembers"
        ) from error
