"""Free pages of a SQLite file, and a reserve on the disk that only works that make room may use.

    the disk is nearly full ─▶ the log is emptied before each write, so that little of it waits to be in the database
    it is full ─▶ the reserve is given ─▶ what makes room is written, and nothing else ─▶ the log is emptied, and the
    reserve is there again, before anything else is written

Used by the thread that writes the database.
"""

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from groundwork.service import store_folder

SPARE_PAGES, CUT_OFF_AT_ONCE = 1024, 200
"""Pages that stay for what comes next, and how many are cut off by one write: a few milliseconds."""
MOST, PART = 4 << 20, 4
"""Bytes of the reserve where there is room enough: a quarter of what is free. A step that makes room takes one or two
MiB."""
LEAST = 4 << 10
FOR_OPENING = 256 << 10
"""What opening the database takes, and what is written beside it then: the index of the log alone has 32 KiB."""

log = logging.getLogger(__name__)


def cut_off(connection: sqlite3.Connection, spare: int) -> bool:
    """Cut off some of the free pages that are too many, in a transaction of the caller's; whether there are more."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    too_many = free - spare
    for _ in range(min(too_many, CUT_OFF_AT_ONCE)):  # a step of the statement is a page, and the module takes only one
        connection.execute("PRAGMA incremental_vacuum(1)")
    return bool(too_many > CUT_OFF_AT_ONCE)


class DiskReserve:
    """Of the database at this path. `given`: bytes that were taken out and are to be put back."""

    def __init__(self, database: Path) -> None:
        self._file = _file_of(database)
        self.given = 0

    def open_up(self) -> None:
        """Before the database is opened: give it on a disk that is too full for that."""
        if (size := _size(self._file)) and _free(self._file) < FOR_OPENING:
            self._empty(size)

    def make(self) -> None:
        """Have it, where there is room enough. What a process that died had given is to be put back."""
        size = _size(self._file)
        if self._file.exists() and not (size or self.given):
            self.given = MOST
        elif not self.given:
            self._grow((size + _free(self._file)) // PART)

    def give(self) -> bool:
        """Whether there was any."""
        if not (size := _size(self._file)):
            return False
        log.warning("the disk is full: what is kept for that is used to make room", extra={"bytes": size})
        self._empty(size)
        return True

    def put_back(self, connection: sqlite3.Connection) -> None:
        """As much of it as there is, unless the log cannot be emptied yet."""
        with contextlib.suppress(sqlite3.Error):
            if log_emptied(connection, "TRUNCATE"):
                self._grow(min(self.given, _free(self._file)))
                self.given = 0

    def _empty(self, size: int) -> None:
        os.truncate(self._file, 0)
        self.given = size

    def _grow(self, wanted: int) -> None:
        """As far as the disk allows: others may be quicker to take it."""
        with contextlib.suppress(OSError), self._file.open("ab") as file:
            store_folder.left_to_owner(self._file)
            self._file.chmod(0o600)
            size = file.tell()
            more = min(MOST, wanted) - size
            while more >= LEAST:
                try:
                    os.posix_fallocate(file.fileno(), size, more)
                    break
                except OSError:
                    os.ftruncate(file.fileno(), size)
                    more //= 2


def log_emptied(connection: sqlite3.Connection, how: str = "PASSIVE") -> bool:
    """Whether the database has all of the log: not while older rows are read. Raises sqlite3.Error without room."""
    busy, frames, moved = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
    return not busy and frames == moved


def has_room(database: Path) -> bool:
    """Whether its disk has so much that others can write when a reserve is made on it."""
    return _free(database) > 2 * MOST


def _file_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-reserve")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _free(path: Path) -> int:
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize
