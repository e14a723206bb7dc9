"""Group commit: one SQLite connection in one writer thread, where concurrent writes share one fsync.

A write is a function of the connection. It is acknowledged after its COMMIT has returned, so it survives kill -9 and
power loss (synchronous=FULL). It may run several times before it is committed once, so it must depend on the connection
alone, fetch all it selects, and never begin, commit, roll back or change the schema (which has no deferred
constraints). Other connections must only read: before SQLite 3.51.3 a checkpoint beside a commit of another connection
could, rarely, corrupt the file.
"""

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from groundwork.service.errors import Broken, TryAgain
from groundwork.sqlite.errors import Full, full_error, is_file_error, storage_error
from groundwork.sqlite.reserve import ENOUGH, DiskReserve, checkpoint, cut_off, free_beside
from groundwork.telemetry.metrics import Instruments

T = TypeVar("T")

CACHED_STATEMENTS = 512
BUSY_S = 5.0
"""Wait for another connection's lock."""
LONGEST_LOG = 4 << 20
"""Bytes that the write-ahead log keeps. SQLite begins it again at about this size, unless a reader is in the way."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Work(Generic[T]):
    run: Callable[[sqlite3.Connection], T]
    answered: asyncio.Future[T]
    makes_room: bool
    error: BaseException | None = None
    value: T = field(init=False)


OnCommit = Callable[[int, float, float], None]
"""Called in the writer thread with the writes of a committed transaction, its seconds, and those of its COMMIT, which
waits for the disk."""


class GroupCommit:
    """The writer of a SQLite file, used from one event loop. Opening raises TryAgain or Broken.

    Without `durable` nothing waits for the disk. `reserve`: space for works that make room; others are refused until it
    is put back. `making_room`: only these are written.
    """

    def __init__(self, path: Path, *, durable: bool = True, reserve: DiskReserve | None = None) -> None:
        self._path = path
        self._reserve = reserve
        self.making_room = False
        self.on_commit: OnCommit = lambda *_: None
        self.trouble = ""
        """The reason why the last write was not stored; empty if it was."""
        self._connection = _open(path, durable=durable)
        if reserve:
            reserve.make()
        self._queue: queue.SimpleQueue[list[_Work[Any]] | None] = queue.SimpleQueue()
        self._works = list[_Work[Any]]()
        """Handed over once per turn of the event loop, because waking a thread costs more than most works."""
        self._closing = False
        self._broken_by: Exception | None = None
        self._writer = threading.Thread(target=self._run, name=f"group-commit {path.name}", daemon=True)
        self._writer.start()

    def write(self, work: Callable[[sqlite3.Connection], T], *, makes_room: bool = False) -> asyncio.Future[T]:
        """Runs `work` in a shared transaction. Awaiting it raises the work's error or TryAgain, and then nothing of it
        is stored; or Broken. The work of a cancelled caller may still be committed."""
        if self._closing:
            raise TryAgain(f"{self._path} is closing and stored nothing: write again after the next start")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()
        self._works.append(_Work(work, answered, makes_room))
        if len(self._works) == 1:
            loop.call_soon(self._hand_over)
        return answered

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.to_thread(self._writer.join)

    def _hand_over(self) -> None:
        works, self._works = self._works, []
        if works:
            self._queue.put(works)

    def _run(self) -> None:
        batch: list[_Work[Any]] | None = []
        while batch is not None:
            group, batch = list[_Work[Any]](), self._queue.get()
            with contextlib.suppress(queue.Empty):
                while batch is not None:
                    group += batch
                    batch = self._queue.get_nowait()
            if group:
                self._commit_group(group)
                with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter any more
                    group[0].answered.get_loop().call_soon_threadsafe(self._answer, group)
        # If this fails nothing is lost: what is committed stays in the WAL, which the next start reads.
        self._put_back()
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()

    def _commit_group(self, group: list[_Work[Any]]) -> None:
        """A failed commit fails every work, also one that refused by itself, because it may have seen another's row."""
        try:
            if self._broken_by:
                self._fail(group, self._broken_by)
            elif (reserve := self._reserve) and (
                self.making_room or reserve.given or free_beside(self._path) <= ENOUGH
            ):
                self._commit_without_room(group, reserve)
            else:
                self._commit(group)
        except Exception as error:  # noqa: BLE001 - the folder is gone, for example: no caller may be left waiting
            self._fail(group, error)

    def _commit_without_room(self, group: list[_Work[Any]], reserve: DiskReserve) -> None:
        allowed = self._allowed(group, reserve)
        try:
            self._commit(allowed)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(allowed, error)
        makers = [item for item in allowed if item.makes_room and isinstance(item.error, Full)]
        if self.making_room and makers and reserve.give():
            self._commit(makers)

    def _allowed(self, group: list[_Work[Any]], reserve: DiskReserve) -> list[_Work[Any]]:
        """Works that may be written now: only those that make room while the reserve is given, or while the file has
        no room for what is in the log."""
        much = free_beside(self._path) > ENOUGH
        if reserve.given and (much or not self.making_room):
            self._put_back()
        if (much or self._log_begins_again()) and not reserve.given:
            return group
        for item in group:
            if not item.makes_room:
                item.error = full_error(self._path, "only what makes room is written")
        return [item for item in group if item.makes_room]

    def _log_begins_again(self) -> bool:
        """True if the file has room for what is in the log. If not, some of it is made."""
        try:
            checkpoint(self._connection)
        except sqlite3.Error:
            if self.making_room:
                self._cut_off()
            return False
        return True

    def _cut_off(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            cut_off(self._connection, spare=0)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail([], error)
        with contextlib.suppress(sqlite3.Error):
            checkpoint(self._connection)

    def _put_back(self) -> None:
        if self._reserve and self._reserve.given:
            self._connection.execute("PRAGMA busy_timeout=0")  # a reader is not waited for
            try:
                self._reserve.put_back(self._connection)
            finally:
                self._connection.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")

    def _commit(self, group: list[_Work[Any]]) -> None:
        """Runs the group in one transaction, and again without a work that raised after it wrote."""
        connection, todo = self._connection, list(group)
        while todo:
            began = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            for item in todo:
                changes = connection.total_changes
                _perform(item, connection)
                # SQLite ends the transaction by itself after some errors, such as those of INSERT OR ROLLBACK.
                if not connection.in_transaction:
                    item.error = item.error or RuntimeError("a work ended the transaction that it shares with others")
                    break
                if item.error is not None and connection.total_changes != changes:
                    connection.execute("ROLLBACK")
                    break
            else:
                synced_from = time.perf_counter()
                connection.execute("COMMIT")
                ended = time.perf_counter()
                try:
                    self.on_commit(len(todo), ended - began, ended - synced_from)
                except Exception:  # the group is durable, whatever an observer raises
                    log.exception("a commit could not be told of")
                return
            todo.remove(item)

    def _fail(self, group: list[_Work[Any]], cause: Exception) -> None:
        for item in group:
            item.error = storage_error(cause, self._path)
        error = storage_error(cause, self._path)
        if not self._broken_by and isinstance(error, Broken):
            self._broken_by = cause
            log.critical("%s", error)
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # what stays open makes the next BEGIN fail, so it is not missed
                self._connection.execute("ROLLBACK")

    def _answer(self, group: list[_Work[Any]]) -> None:
        for item in group:
            if isinstance(item.error, TryAgain | Broken):
                self._note(str(item.error))
            elif self.trouble and item.error is None and not item.makes_room:  # that proves nothing for others
                self._note("")
            if item.answered.done():
                continue
            if item.error is None:
                item.answered.set_result(item.value)
            else:
                item.answered.set_exception(item.error)

    def _note(self, trouble: str) -> None:
        if trouble and not self.trouble:
            log.error("nothing can be stored: %s", trouble)
        elif self.trouble and not trouble:
            log.warning("the store accepts writes again", extra={"file": self._path.name})
        self.trouble = trouble


def _open(path: Path, *, durable: bool) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
        synced = f"synchronous={'FULL' if durable else 'OFF'}"
        for setting in ("journal_mode=WAL", f"journal_size_limit={LONGEST_LOG}", synced, "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")
    except sqlite3.Error as error:
        raise storage_error(error, path) from error
    return connection


def _perform(item: _Work[Any], connection: sqlite3.Connection) -> None:
    item.error = None
    try:
        item.value = item.run(connection)
    except StopIteration as error:  # which no future takes
        item.error = RuntimeError(f"a work raised {error!r}")
    except BaseException as error:
        if is_file_error(error):
            raise
        item.error = error


class StoreMetrics:
    def __init__(self, instruments: Instruments) -> None:
        self._groups = instruments.histogram(
            "agentic.store.commit.duration", "A transaction: all writes that waited, written and synced"
        )
        self._syncs = instruments.histogram(
            "agentic.store.sync.duration", "The COMMIT of a transaction, which is to sync it to the disk"
        )
        self._writes = instruments.counter("agentic.store.writes", "Writes that were committed", unit="{write}")

    def committed(self, writes: int, seconds: float, sync_seconds: float) -> None:
        self._groups.record(seconds)
        self._syncs.record(sync_seconds)
        self._writes.add(by=writes)
