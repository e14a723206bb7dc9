"""The outbox in a SQLite file of its own. Fills the port Outbox.

Like the ledger: writes go through the group commit, and look-ups run on a reading connection on the event loop.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from ductile_gateway.core.deliveries import Delivery
from ductile_gateway.errors import Broken, Misconfigured, TryAgain
from ductile_gateway.outbound_ports import Outcome
from groundwork.group_commit import GroupCommit
from groundwork.migrations import MigrationsWrong, StoreTooNew, migrate
from groundwork.storage_errors import StorageBroken, StorageError, storage_error

FILE = "outbox.db"
FORGOTTEN_AT_ONCE = 500

T = TypeVar("T")
Row = tuple[str, str, str, str, str, str, bytes, int, int]

_ADD = """
INSERT OR IGNORE INTO deliveries (target, lane, key, run_id, type, url, body, accepted_at, tries, due_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?8
WHERE NOT EXISTS (SELECT 1 FROM deliveries WHERE outcome = 'gone' AND target = ?1 AND run_id = ?4)
"""
_LANES = """
SELECT lane FROM (SELECT DISTINCT lane FROM deliveries WHERE outcome IS NULL) AS waiting
WHERE EXISTS (SELECT 1 FROM heads WHERE heads.lane = waiting.lane AND due_at <= ?)
"""
_DUE = """
SELECT target, lane, key, run_id, type, url, body, accepted_at, tries
FROM heads WHERE lane = ? AND due_at <= ? ORDER BY due_at, position LIMIT ?
"""
_SETTLE = """
UPDATE deliveries SET outcome = ?, settled_at = ?, tries = ?, body = x'', url = ''
WHERE target = ? AND key = ? AND outcome IS NULL
"""
_SETTLE_ALL = """
UPDATE deliveries SET outcome = 'gone', settled_at = ?, body = x'', url = ''
WHERE target = ? AND run_id = ? AND outcome IS NULL
"""
_POSTPONE = "UPDATE deliveries SET due_at = ?, tries = ?, why = ? WHERE target = ? AND key = ? AND outcome IS NULL"
_FORGET = """
DELETE FROM deliveries WHERE position IN
(SELECT position FROM deliveries WHERE outcome IS NOT NULL AND settled_at < ? ORDER BY settled_at LIMIT ?)
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SqliteOutbox:
    """An open outbox, from `open_outbox`."""

    def __init__(self, path: Path, writer: GroupCommit, *, reader: sqlite3.Connection) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader

    async def add(self, deliveries: Sequence[Delivery]) -> None:
        rows = [_values(delivery) for delivery in deliveries]
        await self._write(lambda connection: connection.executemany(_ADD, rows).close())

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        return [lane for (lane,) in self._read(_LANES, (_number(now),))]

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Delivery]:
        return [_delivery(row) for row in self._read(_DUE, (lane, _number(now), limit))]

    async def settle(self, delivery: Delivery, outcome: Outcome, *, at: datetime) -> None:
        one = (outcome, _number(at), delivery.tries, delivery.target, delivery.key)
        rest = (_number(at), delivery.target, delivery.run_id)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_SETTLE, one)
            if outcome == "gone":
                connection.execute(_SETTLE_ALL, rest)

        await self._write(work)

    async def postpone(self, delivery: Delivery, due_at: datetime, *, why: str) -> None:
        values = (_number(due_at), delivery.tries, why, delivery.target, delivery.key)
        await self._write(lambda connection: connection.execute(_POSTPONE, values).close())

    async def forget_before(self, instant: datetime) -> None:
        values = (_number(instant), FORGOTTEN_AT_ONCE)
        while await self._write(lambda connection: connection.execute(_FORGET, values).rowcount) == FORGOTTEN_AT_ONCE:
            pass

    def _read(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _remedy(storage_error(error, self._path)) from error

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.write(work)
        except StorageError as error:
            raise _remedy(error) from error


@contextlib.asynccontextmanager
async def open_outbox(folder: Path) -> AsyncIterator[SqliteOutbox]:
    """The outbox in an existing folder. Raises Misconfigured when its file cannot be used."""
    path = folder / FILE
    try:
        await asyncio.to_thread(migrate, path, files(f"{__package__}.outbox_sql"))
        writer = await asyncio.to_thread(GroupCommit, path)
    except (StoreTooNew, MigrationsWrong, StorageError) as error:
        raise Misconfigured(str(error)) from error
    try:
        with contextlib.closing(_reader(path)) as reader:
            yield SqliteOutbox(path, writer, reader=reader)
    finally:
        await writer.close()


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _values(delivery: Delivery) -> tuple[object, ...]:
    named = (delivery.target, delivery.lane, delivery.key, delivery.run_id, delivery.type, delivery.url)
    return (*named, delivery.body, _number(delivery.accepted_at), delivery.tries)


def _delivery(row: Row) -> Delivery:
    target, lane, key, run_id, event_type, url, body, accepted_at, tries = row
    return Delivery(
        target=target,
        lane=lane,
        key=key,
        run_id=run_id,
        type=event_type,
        url=url,
        body=body,
        accepted_at=_EPOCH + accepted_at * _MICROSECOND,
        tries=tries,
    )


def _number(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def _remedy(error: StorageError) -> TryAgain | Broken:
    return Broken(str(error)) if isinstance(error, StorageBroken) else TryAgain(str(error))
