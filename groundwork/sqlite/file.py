"""A service's SQLite file: opened and migrated, with one connection that writes and two that read.

Writes go through the group commit, and reads see everything that was acknowledged. The caller's lock makes sure that
one process writes; others may read meanwhile.

The schema is a folder of scripts `NNNN_name.sql`, counted in `PRAGMA user_version`. Each runs once, in order, in one
transaction with its number. An older program refuses a newer file.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import aiosqlite

from groundwork.service import store_folder
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from groundwork.sqlite.errors import is_damage, is_file_error, read_only, read_only_uri, storage_error
from groundwork.sqlite.group_commit import GroupCommit, OnCommit
from groundwork.sqlite.reserve import ENOUGH, SPARE_PAGES, DiskReserve, cut_off, free_beside

T = TypeVar("T")
Values = tuple[object, ...]

CHECKED_BYTES = 16 << 20
"""Size up to which a file is checked when it is opened. Reading finds damage to a larger one."""
_USED = (
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

log = logging.getLogger(__name__)


@dataclass(eq=False)
class SqliteFile:
    """Every method raises TryAgain, also while closing, and Broken. `_at_once` reads on the event loop, `_reader` in a
    thread."""

    path: Path
    _writer: GroupCommit | None
    _at_once: sqlite3.Connection
    _reader: aiosqlite.Connection
    closing: bool = False

    @property
    def trouble(self) -> str:
        """The reason why the last write was not stored; empty if it was."""
        return self._writer.trouble if self._writer else ""

    def write(self, work: Callable[[sqlite3.Connection], T], *, makes_room: bool = False) -> Awaitable[T]:
        """Returns the result of `work`, once durable. Raises its errors, and Misconfigured for a file opened read-only.
        `makes_room`: it may use the reserve."""
        return (self._writer or self._refuse()).write(work, makes_room=makes_room)

    def later(self, work: Callable[[sqlite3.Connection], object], *, makes_room: bool = False) -> None:
        """Writes with the next group, without a waiter. A crash or a full disk may lose it, and so may closing."""
        if self._writer is not None and not self.closing:
            self._writer.write(work, makes_room=makes_room).add_done_callback(self._report_loss)

    @contextlib.contextmanager
    def making_room(self) -> Iterator[None]:
        """Inside, on a full disk, only works that make room are written, from the reserve."""
        writer = self._writer or self._refuse()
        writer.making_room = True
        try:
            yield
        finally:
            writer.making_room = False
            self.later(lambda _: None, makes_room=True)  # the reserve is put back before it

    def observe(self, on_commit: OnCommit) -> None:
        (self._writer or self._refuse()).on_commit = on_commit

    def look_up(self, statement: str, values: Values = ()) -> list[Any]:
        """Reads rows by key on the event loop: some 50 µs from cached pages, less than a hand-over to a thread."""
        if self.closing:
            self._refuse_closing()
        try:
            return self._at_once.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self._fail(error)

    async def read(self, statement: str, values: Values = ()) -> list[Any]:
        """Reads in another thread, for statements that may take long."""
        if self.closing:
            self._refuse_closing()
        try:
            return list(await self._reader.execute_fetchall(statement, values))
        except sqlite3.Error as error:
            self._fail(error)

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Inside, `read` sees the file as of one instant."""
        await self.read("BEGIN")
        try:
            yield
        finally:
            await self.read("COMMIT")

    async def used(self) -> int:
        """Bytes of the file without its free pages."""
        ((used,),) = await self.read(_USED)
        return int(used)

    async def shrink(self) -> bool:
        """Cuts some free pages off the file. True if there are more; others write in between."""
        spare = SPARE_PAGES if free_beside(self.path) > ENOUGH else 0
        return await self.write(partial(cut_off, spare=spare), makes_room=True)

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        raise storage_error(error, self.path) if is_file_error(error) else error

    def _refuse_closing(self) -> NoReturn:
        raise TryAgain(f"{self.path} is closing: read again after the next start")

    def _refuse(self) -> NoReturn:
        raise Misconfigured(f"{self.path} was opened to be read only")

    def _report_loss(self, written: asyncio.Future[Any]) -> None:
        if not written.cancelled() and (error := written.exception()):
            log.error("housekeeping was not stored in %s: %r", self.path, error)


Opener = Callable[[Path, Traversable, bool, bool], AbstractAsyncContextManager[SqliteFile]]
"""Opens a database for writing. The default has a thread that writes and one that reads."""


def open_file(
    path: Path, migrations: Traversable, *, durable: bool = True, reserve: bool = False
) -> AbstractAsyncContextManager[SqliteFile]:
    """Opens the file, made if absent, for this user alone. `migrations`: the folder of its schema. Not `durable`: it
    survives a crash of the process, but not of the machine. `reserve`: keeps space on the disk for works that make
    room. Raises OSError for an unusable folder, Misconfigured for a damaged file, and TryAgain for a full disk or a
    locked file."""
    return _opener.get()(path, migrations, durable, reserve)


@contextlib.asynccontextmanager
async def open_with_threads(
    path: Path, migrations: Traversable, durable: bool, reserve: bool
) -> AsyncIterator[SqliteFile]:
    def opened() -> GroupCommit:
        kept = DiskReserve(path) if reserve else None
        store_folder.make_private_folder(path.parent)
        path.touch(mode=0o600)
        path.chmod(0o600)
        store_folder.give_to_owner(path)
        _refuse_damaged(path)
        migrate(path, migrations)
        return GroupCommit(path, durable=durable, reserve=kept)

    try:
        writer = await asyncio.to_thread(opened)
    except Broken as error:  # at the start a restart mends nothing
        raise Misconfigured(str(error)) from error
    try:
        async with _reading(path, writer) as file:
            yield file
    finally:
        await writer.close()


_opener: ContextVar[Opener] = ContextVar("opener", default=open_with_threads)
use_opener = _opener.set
"""Sets the opener of this context and of tasks started in it."""


@contextlib.asynccontextmanager
async def open_for_reading(path: Path, migrations: Traversable) -> AsyncIterator[SqliteFile]:
    """Opens read-only, also while another process writes. Raises Misconfigured for another schema version."""
    try:
        async with _reading(path, None) as file:
            ((version,),) = await file.read("PRAGMA user_version")
            if version != (known := len(_sorted_scripts(migrations))):
                raise Misconfigured(
                    f"{path} has schema version {version}, and this program reads version {known}: use the version "
                    "that wrote it, or start this version's agent once, which brings an older database up to date"
                )
            yield file
    except (sqlite3.Error, Broken) as error:
        cause = error.__cause__ if isinstance(error, Broken) else error
        if not isinstance(cause, sqlite3.Error):
            raise
        raise Misconfigured(
            f"{path} cannot be read ({cause}): if it is damaged, move it away and restore a backup"
        ) from error


def _refuse_damaged(path: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            is_small = path.stat().st_size <= CHECKED_BYTES
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1] if is_small else "ok"
    except sqlite3.Error as error:
        if not is_damage(error):
            raise storage_error(error, path) from error
        found = str(error)
    if found != "ok":
        raise Misconfigured(
            f"{path} is damaged ({found}): restore it from a backup, or move it away with its -wal file to begin "
            "without what is in it"
        )


def microseconds(instant: datetime) -> int:
    """Microseconds since 1970 UTC, as columns hold an instant."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


@contextlib.asynccontextmanager
async def _reading(path: Path, writer: GroupCommit | None) -> AsyncIterator[SqliteFile]:
    async with aiosqlite.connect(read_only_uri(path), uri=True, isolation_level=None) as reader:
        with contextlib.closing(read_only(path)) as at_once:
            reader.text_factory = at_once.text_factory = _lenient
            file = SqliteFile(path, writer, at_once, reader)
            try:
                yield file
            finally:
                file.closing = True


_lenient = partial(str, encoding="utf-8", errors="replace")
"""Decodes damaged text, so that one row does not fail a whole list."""


def migrate(path: Path, scripts: Traversable) -> int:
    """Brings the file (made if absent) up to the newest of `scripts`, a folder of `importlib.resources`, and returns
    its version. Raises Misconfigured for a newer file, TryAgain and Broken; the complete scripts stay."""
    ordered = _sorted_scripts(scripts)
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            found = _version(path, connection, known=len(ordered))
            if found == 0:  # set before there is a table, so that free pages can be cut off
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            for version, script in enumerate(ordered[found:], start=found + 1):
                sql = script.read_text(encoding="utf-8")  # closing the connection rolls back what fails
                connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\n;PRAGMA user_version={version};\nCOMMIT;")
            if 0 < found < len(ordered):
                facts = {"file": str(path), "before": found, "now": len(ordered)}
                log.warning("a database was brought up to date: older programs refuse it from now on", extra=facts)
    except sqlite3.Error as error:
        raise storage_error(error, path) from error
    return len(ordered)


def pending_upgrade(path: Path, scripts: Traversable) -> str:
    """Describes what `migrate` will do to an older file; "" for a current or unreadable one. Raises Misconfigured for a
    newer one."""
    known, found = len(_sorted_scripts(scripts)), 0
    if os.access(path, os.R_OK):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(read_only(path)) as connection:
            found = _version(path, connection, known=known)
    if found in (0, known):
        return ""
    return f"{path} has schema version {found}: the next start makes {known} of it, which older programs refuse"


def _version(path: Path, connection: sqlite3.Connection, *, known: int) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > known:
        raise Misconfigured(
            f"{path} has schema version {found}, and this program knows versions up to {known}: "
            "start the newer program that wrote it, or restore a backup from before that upgrade"
        )
    return found


def _sorted_scripts(scripts: Traversable) -> list[Traversable]:
    return sorted((entry for entry in scripts.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
