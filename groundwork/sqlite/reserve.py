"""Free pages of a SQLite file, and a reserve on the disk that only works that make room may use.

    the disk is nearly full ─▶ the log is emptied before each write, so that little of it waits to be in the database
    it is full ─▶ the reserve is cut, and the log grows by as much in the same instant ─▶ what makes room is written,
    and nothing else ─▶ the log is emptied, and the reserve has its size again, before anything else is written

Used by the thread that writes the database. On btrfs and ZFS, which always write to a new place, the blocks are given
free, and the log has to be the first.
"""

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from groundwork.service import store_folder

SPARE_PAGES, CUT_OFF_AT_ONCE = 1024, 200
"""Pages that stay for what comes next, and how many are cut off by one write: a few milliseconds."""


def cut_off(connection: sqlite3.Connection, spare: int) -> bool:
    """Cut off some of those that are too many, in a transaction of the caller's; whether there are more."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    too_many = free - spare
    if too_many <= 0:
        return False
    for _ in range(min(too_many, CUT_OFF_AT_ONCE)):  # a step of the statement is a page, and the module takes only one
        connection.execute("PRAGMA incremental_vacuum(1)")
    return bool(too_many > CUT_OFF_AT_ONCE)


MOST, PART = 4 << 20, 4
"""Bytes of it where there is room enough: a quarter of what is free. A step that makes room takes one or two MiB."""
AT_ONCE, LEAST = 256 << 10, 4 << 10
"""What is given at once, in bytes; of that others may be quicker to take some."""
FOR_OPENING = 256 << 10
"""What opening the database takes, and what is written beside it then: the index of the log alone has 32 KiB."""

log = logging.getLogger(__name__)


class Reserve:
    """Of the database at this path. `given`: bytes that were taken out of it and are to be put back."""

    def __init__(self, database: Path) -> None:
        self._file, self._log = _beside(database, "reserve"), _beside(database, "wal")
        self.given = 0

    def open_up(self) -> None:
        """Before the database is opened: have some of it free on a full disk."""
        if (size := size_of(self._file)) and _free(self._file) < FOR_OPENING:
            self.given = min(size, FOR_OPENING)
            os.truncate(self._file, size - self.given)

    def make(self) -> None:
        """Have it, where there is room enough. What the log of a process that died was given is to be put back."""
        size = size_of(self._file)
        if self._file.exists() and not (size or self.given):
            self.given = MOST
        elif (wanted := min(MOST, (size + _free(self._file)) // PART)) > size:
            _grow(self._file, wanted - size)

    def give(self, connection: sqlite3.Connection) -> bool:
        """Have the database and its log take it, in parts; whether there was any."""
        if not (size := size_of(self._file)):
            return False
        log.warning("the disk is full: what is kept for that is used to make room", extra={"bytes": size})
        emptied = _emptied_if_it_can(connection)
        for left in range(size - AT_ONCE, -AT_ONCE, -AT_ONCE):
            os.truncate(self._file, max(0, left))
            if emptied or left < size // 2:
                _grow(self._log, AT_ONCE + min(0, left))
            else:  # first the database has to grow by what is in the log
                emptied = _emptied_if_it_can(connection)
        self.given += size
        return True

    def put_back(self, connection: sqlite3.Connection) -> None:
        """As much of it as there is, unless the log cannot be emptied yet."""
        if _emptied_if_it_can(connection, "TRUNCATE"):
            _grow(self._file, min(self.given, _free(self._file)))
            self.given = 0


def log_emptied(connection: sqlite3.Connection, how: str = "PASSIVE") -> bool:
    """Whether the database has all of the log: not while older rows are read. Raises sqlite3.Error without room."""
    busy, frames, moved = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
    return not busy and frames == moved


def _emptied_if_it_can(connection: sqlite3.Connection, how: str = "PASSIVE") -> bool:
    with contextlib.suppress(sqlite3.Error):
        return log_emptied(connection, how)
    return False


def has_room(database: Path) -> bool:
    """Whether its disk has so much that others can write when a reserve is made on it."""
    disk = os.statvfs(database.parent)
    return disk.f_bavail * disk.f_frsize > 2 * MOST


def reserved(database: Path) -> int:
    return size_of(_beside(database, "reserve"))


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _beside(database: Path, what: str) -> Path:
    return database.with_name(f"{database.name}-{what}")


def _free(path: Path) -> int:
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize


def _grow(path: Path, more: int) -> None:
    """Have the file take so much more of the disk, in parts: less where others are quicker."""
    part = AT_ONCE
    with contextlib.suppress(OSError), path.open("ab") as file:
        store_folder.left_to_owner(path)
        path.chmod(0o600)
        size = file.tell()
        while more >= LEAST and part >= LEAST:
            try:
                os.posix_fallocate(file.fileno(), size, min(part, more))
            except OSError:
                os.ftruncate(file.fileno(), size)
                part //= 2
            else:
                size, more = size + min(part, more), more - min(part, more)
