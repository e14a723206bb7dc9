"""Free pages of a SQLite file, and a reserve on the disk for writes that make room.

    disk nearly full ─▶ the log is emptied before each write, so little of it waits for the database
    disk full ─▶ the reserve is given ─▶ only what makes room is written ─▶ log emptied, reserve put back ─▶ others

Used by the thread that writes the database.
"""

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from groundwork.service import store_folder

SPARE_PAGES, CUT_OFF_AT_ONCE = 1024, 200
"""Free pages that stay for later writes, and pages cut off by one write, which takes a few milliseconds."""
MOST, PART = 4 << 20, 4
"""Bytes of the reserve: at most MOST, and a PART of what is free. A step that makes room takes one or two MiB."""
ENOUGH = 2 * MOST
"""Free bytes with which other writes find space beside a reserve."""
LEAST = 4 << 10
FOR_OPENING = 256 << 10
"""Bytes to open the database and write what belongs to it: the index of the log alone has 32 KiB."""

log = logging.getLogger(__name__)


def cut_off(connection: sqlite3.Connection, spare: int) -> bool:
    """Cuts off some of the surplus free pages, in the caller's transaction. True if there are more."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    too_many = free - spare
    for _ in range(min(too_many, CUT_OFF_AT_ONCE)):  # a step of the statement is a page, and the module takes only one
        connection.execute("PRAGMA incremental_vacuum(1)")
    return bool(too_many > CUT_OFF_AT_ONCE)


class DiskReserve:
    """A file next to the database, which is freed at once on a disk that is too full to open that. `given`: bytes that
    were freed and are to be put back."""

    def __init__(self, database: Path) -> None:
        self._file = database.with_name(f"{database.name}-reserve")
        self.given = 0
        if (size := _size(self._file)) and free_beside(self._file) < FOR_OPENING:
            self._empty(size)

    def make(self) -> None:
        """Makes it as far as there is room. An empty file means that a killed process had given it."""
        size = _size(self._file)
        if self._file.exists() and not (size or self.given):
            self.given = MOST
        elif not self.given:
            self._grow((size + free_beside(self._file)) // PART)

    def give(self) -> bool:
        """Frees it. False without a reserve."""
        if not (size := _size(self._file)):
            return False
        log.warning("the disk is full: what is kept for that is used to make room", extra={"bytes": size})
        self._empty(size)
        return True

    def put_back(self, connection: sqlite3.Connection) -> None:
        """Puts back as much as there is room for, unless the log cannot be emptied yet."""
        with contextlib.suppress(sqlite3.Error, OSError):
            if checkpoint(connection, "TRUNCATE"):
                self._grow(min(self.given, free_beside(self._file)))
                self.given = 0

    def _empty(self, size: int) -> None:
        os.truncate(self._file, 0)
        self.given = size

    def _grow(self, wanted: int) -> None:
        """Grows as far as the disk allows, because other processes may take the space first."""
        with contextlib.suppress(OSError), self._file.open("ab") as file:
            store_folder.give_to_owner(self._file)
            self._file.chmod(0o600)
            size = file.tell()
            more = min(MOST, wanted) - size
            while more >= LEAST:
                try:
                    _allocate(file.fileno(), size, more)
                    break
                except OSError:
                    os.ftruncate(file.fileno(), size)
                    more //= 2


def _allocate(descriptor: int, size: int, more: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, size, more)
    else:  # macOS has none
        os.pwrite(descriptor, bytes(more), size)
        os.fsync(descriptor)


def checkpoint(connection: sqlite3.Connection, how: str = "PASSIVE") -> bool:
    """True if the database has all of the log; not while older rows are read. Raises sqlite3.Error without room."""
    busy, frames, moved = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
    return not busy and frames == moved


def free_beside(path: Path) -> int:
    """Bytes that are free on the disk of a file."""
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
