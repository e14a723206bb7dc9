"""A SQLite file of the gateway: what its ledger, outbox, receipts and deliveries have in common.

Writes go through the group commit: all that wait at a moment share one fsync. Reads run on a second connection right on
the event loop: by a key in cached pages that takes some 50 µs, less than to ask another thread.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from ductile_gateway.errors import Broken, Misconfigured, TryAgain
from groundwork.sqlite.errors import StorageBroken, StorageClosed, StorageError, storage_error
from groundwork.sqlite.group_commit import GroupCommit
from groundwork.sqlite.migrations import MigrationsWrong, StoreTooNew, migrate

T = TypeVar("T")

FORGOTTEN_AT_ONCE = 500
log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SqliteFile:
    """An open file, from `open_file`. What waits for the disk raises TryAgain or Broken."""

    def __init__(self, path: Path, writer: GroupCommit, *, reader: sqlite3.Connection) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self.trouble = ""
        """Why the last write was not stored; empty where it was."""

    def read(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        """All rows, as the last commit left them."""
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _remedy(storage_error(error, self._path)) from error

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, durable on return."""
        try:
            stored = await self._writer.write(work)
        except StorageError as error:
            self._note(str(error))
            raise _remedy(error) from error
        self._note("")
        return stored

    def _note(self, trouble: str) -> None:
        if trouble and not self.trouble:
            log.error("nothing can be stored: %s", trouble)
        elif self.trouble and not trouble:
            log.warning("what is stored is stored again", extra={"file": self._path.name})
        self.trouble = trouble

    async def forget(self, some: Callable[[sqlite3.Connection, int], int]) -> None:
        """Have `some` forget at most so many rows and say how many, until all are gone: others write in between."""
        while await self.write(lambda connection: some(connection, FORGOTTEN_AT_ONCE)) == FORGOTTEN_AT_ONCE:
            pass

    def later(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Do it with whatever is written next. What is lost by a crash may as well be lost by closing."""
        with contextlib.suppress(StorageClosed):
            self._writer.later(work)


@contextlib.asynccontextmanager
async def open_file(path: Path, migrations: str) -> AsyncIterator[SqliteFile]:
    """The file in an existing folder; `migrations` is the package that holds them.

    Raises Misconfigured when the file cannot be used.
    """
    try:
        await asyncio.to_thread(migrate, path, files(migrations))
        writer = await asyncio.to_thread(GroupCommit, path)
    except (StoreTooNew, MigrationsWrong, StorageError) as error:
        raise Misconfigured(str(error)) from error
    try:
        with contextlib.closing(_reader(path)) as reader:
            yield SqliteFile(path, writer, reader=reader)
    finally:
        await writer.close()


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def microseconds(instant: datetime) -> int:
    """As files keep instants: since 1970."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(number: int) -> datetime:
    return _EPOCH + number * _MICROSECOND


def _remedy(error: StorageError) -> TryAgain | Broken:
    return Broken(str(error)) if isinstance(error, StorageBroken) else TryAgain(str(error))
