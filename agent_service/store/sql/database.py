"""The database file: opened, checked, migrated; one connection that writes and one that only reads.

Rules: writes go through the group commit, so that all that wait at a moment share one fsync. Reads see everything
that was acknowledged. One process at a time writes, which is the caller's lock to hold; others may read meanwhile.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiosqlite

from agent_service.errors import Misconfigured, TryAgain
from agent_service.store.sql.queries import load_queries
from groundwork.sqlite.errors import StorageBroken, StorageClosed, StorageError, storage_error, storage_kind
from groundwork.sqlite.group_commit import GroupCommit
from groundwork.sqlite.migrations import MigrationsWrong, StoreTooNew, migrate

FILE = "runs.db"

T = TypeVar("T")


class Database:
    """An open database. `sql` holds its statements by name; once it is `closing` nothing is read any more.

    Without a writer it takes no writes (Misconfigured).
    """

    def __init__(self, path: Path, writer: GroupCommit | None, *, reader: aiosqlite.Connection) -> None:
        self.path = path
        self.sql = load_queries()
        self.closing = False
        self._writer = writer
        self._reader = reader

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, once it is durable. Raises what `work` raises, TryAgain, or Misconfigured."""
        if self._writer is None:
            raise Misconfigured(f"{self.path} was opened to be read only")
        try:
            return await self._writer.write(work)
        except StorageError as error:
            raise _remedy(error) from error

    def later(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Write with the next group, or never: what is lost in a crash may as well be lost while closing."""
        with contextlib.suppress(StorageClosed):
            if self._writer is not None:
                self._writer.later(work)

    async def read(self, name: str, parameters: tuple[Any, ...] = ()) -> Sequence[tuple[Any, ...]]:
        """The rows of statement `name`. Raises TryAgain, also while the database is closing, or Misconfigured."""
        if self.closing:
            raise TryAgain(f"{self.path} is closing: read again after the next start")
        try:
            rows: Iterable[Any] = await self._reader.execute_fetchall(self.sql[name], parameters)
        except sqlite3.Error as error:
            if storage_kind(error) is None:
                raise
            raise _remedy(storage_error(error, self.path)) from error
        return list(rows)


@contextlib.asynccontextmanager
async def open_database(folder: Path) -> AsyncIterator[Database]:
    """The database in `folder`, which is made if absent, and is for this user alone. Closed on leaving.

    Raises Misconfigured for a folder or file that cannot be used, TryAgain for one that is full or locked for now.
    """
    path = folder / FILE
    writer = await asyncio.to_thread(_open_writer, path)
    try:
        async with _reader(path) as reader:
            reader.text_factory = _lenient
            database = Database(path, writer, reader=reader)
            try:
                yield database
            finally:
                database.closing = True
    finally:
        await writer.close()


@contextlib.asynccontextmanager
async def open_for_reading(folder: Path) -> AsyncIterator[Database]:
    """The database in `folder`, also while another process has it open. It is neither made, migrated nor written.

    Raises Misconfigured where there is none that this version of the program can read.
    """
    path = folder / FILE
    if not path.is_file():
        raise Misconfigured(f"there is no database {path}: name the configuration of the agent that wrote it")
    newest = sum(script.name.endswith(".sql") for script in (files(__package__) / "migrations").iterdir())
    try:
        async with _reader(path) as reader:
            reader.text_factory = _lenient
            ((version,),) = await reader.execute_fetchall("PRAGMA user_version")
            if version != newest:
                raise Misconfigured(
                    f"{path} has schema version {version}, and this program reads version {newest}: use the version "
                    "that wrote it, or start this version's agent once, which brings an older database up to date"
                )
            yield Database(path, None, reader=reader)
    except sqlite3.Error as error:
        raise _remedy(storage_error(error, path)) from error


def _reader(path: Path) -> aiosqlite.Connection:
    return aiosqlite.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)


def _lenient(text: bytes) -> str:
    """Text in which a damaged row is no fault of a whole list of rows."""
    return text.decode(errors="replace")


def _open_writer(path: Path) -> GroupCommit:
    try:
        _make_private(path)
        _check(path)
        migrate(path, files(__package__) / "migrations")
        return GroupCommit(path)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be used ({error}): give this user the folder, or name another") from error
    except (StoreTooNew, MigrationsWrong) as error:
        raise Misconfigured(str(error)) from error
    except StorageError as error:
        raise _remedy(error) from error


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    path.touch(mode=0o600)
    path.chmod(0o600)


def _check(path: Path) -> None:
    """Raises Misconfigured for a damaged file, before anything is built upon it."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]).splitlines()[-1]
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise storage_error(error, path) from error
        found = str(error)
    if found != "ok":
        raise Misconfigured(
            f"{path} is damaged ({found}): restore it from a backup, or move it away with its -wal file "
            "to begin without the runs in it"
        )


def _remedy(error: StorageError) -> TryAgain | Misconfigured:
    return Misconfigured(str(error)) if isinstance(error, StorageBroken) else TryAgain(str(error))
