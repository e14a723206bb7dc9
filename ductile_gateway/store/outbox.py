"""The outbox and the record of events from outside in the gateway's database. Fills the ports Outbox and Deliveries."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ductile_gateway.outbound.dispatch import Outcome
from ductile_gateway.outbound.notifications import Notification
from groundwork.sqlite.file import SqliteFile, instant, microseconds

Row = tuple[str, str, str, str, str, str, bytes, int, int]

_ADD = """
INSERT OR IGNORE INTO outbox (target, lane, key, run_id, type, url, body, accepted_at, tries, due_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?8
WHERE NOT EXISTS (SELECT 1 FROM outbox WHERE outcome = 'gone' AND target = ?1 AND run_id = ?4)
"""
_LANES = """
SELECT lane FROM (SELECT DISTINCT lane FROM outbox WHERE outcome IS NULL) AS waiting
WHERE EXISTS (SELECT 1 FROM heads WHERE heads.lane = waiting.lane AND due_at <= ?)
"""
_DUE = """
SELECT target, lane, key, run_id, type, url, body, accepted_at, tries
FROM heads WHERE lane = ? AND due_at <= ? ORDER BY due_at, position LIMIT ?
"""
_SETTLE = """
UPDATE outbox SET outcome = ?, settled_at = ?, tries = ?, body = x'', url = ''
WHERE target = ? AND key = ? AND outcome IS NULL
"""
_SETTLE_ALL = """
UPDATE outbox SET outcome = 'gone', settled_at = ?, body = x'', url = ''
WHERE target = ? AND run_id = ? AND outcome IS NULL
"""
_POSTPONE = "UPDATE outbox SET due_at = ?, tries = ?, why = ? WHERE target = ? AND key = ? AND outcome IS NULL"
OLD = "SELECT target, key FROM outbox WHERE outcome IS NOT NULL AND settled_at < ? ORDER BY settled_at LIMIT ?"
FORGET = """
DELETE FROM outbox WHERE position IN
(SELECT position FROM outbox WHERE outcome IS NOT NULL AND settled_at < ? ORDER BY settled_at LIMIT ?)
"""

_BACKLOG = "SELECT count(*), min(accepted_at) FROM outbox WHERE outcome IS NULL"
_LAST_WHY = "SELECT lane, why FROM outbox WHERE outcome IS NULL AND why <> '' ORDER BY position LIMIT 1"
_DEAD = "SELECT count(*) FROM outbox WHERE outcome = 'dead'"


@dataclass(frozen=True, slots=True)
class Backlog:
    """`oldest`: since when. `lane`, `why`: of the first that met an obstacle. `dead`: given up, and still
    remembered."""

    waiting: int
    oldest: datetime | None
    lane: str
    why: str
    dead: int


class SqliteOutbox:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def add(self, deliveries: Sequence[Notification]) -> None:
        rows = [_values(delivery) for delivery in deliveries]
        await self._file.write(lambda connection: connection.executemany(_ADD, rows).close())

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        return [lane for (lane,) in self._file.look_up(_LANES, (microseconds(now),))]

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Notification]:
        return [read_delivery(row) for row in self._file.look_up(_DUE, (lane, microseconds(now), limit))]

    async def claim(self, delivery: Notification) -> bool:
        del delivery
        return True  # there is no other gateway

    async def settle(self, delivery: Notification, outcome: Outcome, *, at: datetime) -> None:
        one = (outcome, microseconds(at), delivery.tries, delivery.target, delivery.key)
        rest = (microseconds(at), delivery.target, delivery.run_id)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_SETTLE, one)
            if outcome == "gone":
                connection.execute(_SETTLE_ALL, rest)

        await self._file.write(work)

    async def postpone(self, delivery: Notification, due_at: datetime, *, why: str) -> None:
        values = (microseconds(due_at), delivery.tries, why, delivery.target, delivery.key)
        await self._file.write(lambda connection: connection.execute(_POSTPONE, values).close())

    def backlog(self) -> Backlog:
        ((waiting, oldest),) = self._file.look_up(_BACKLOG, ())
        ((lane, why),) = self._file.look_up(_LAST_WHY, ()) or [("", "")]
        ((dead,),) = self._file.look_up(_DEAD, ())
        return Backlog(waiting, None if oldest is None else instant(oldest), lane, why, dead)

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        await self._file.forget(lambda connection, most: connection.execute(FORGET, (before, most)).rowcount)


def _values(delivery: Notification) -> tuple[object, ...]:
    named = (delivery.target, delivery.lane, delivery.key, delivery.run_id, delivery.type, delivery.url)
    return (*named, delivery.body, microseconds(delivery.accepted_at), delivery.tries)


def read_delivery(row: Row) -> Notification:
    target, lane, key, run_id, event_type, url, body, accepted_at, tries = row
    return Notification(
        target=target,
        lane=lane,
        key=key,
        run_id=run_id,
        type=event_type,
        url=url,
        body=body,
        accepted_at=instant(accepted_at),
        tries=tries,
    )


_FIND_RECEIVED = "SELECT event_key FROM received WHERE source = ? AND identity = ?"
_RECORD = """
INSERT INTO received (source, identity, event_key, received_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
OLD_RECEIVED = "SELECT source, identity FROM received WHERE received_at < ? ORDER BY received_at LIMIT ?"
_FORGET_RECEIVED = "DELETE FROM received WHERE source = ? AND identity = ?"


class SqliteDeliveries:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def find(self, source: str, identity: str) -> str | None:
        rows = self._file.look_up(_FIND_RECEIVED, (source, identity))
        return str(rows[0][0]) if rows else None

    async def record(self, source: str, identity: str, *, event_key: str, at: datetime) -> None:
        values = (source, identity, event_key, microseconds(at))
        await self._file.write(lambda connection: connection.execute(_RECORD, values).rowcount)

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        await self._file.forget(lambda connection, most: forget_received(connection, before, most))


def forget_received(connection: sqlite3.Connection, before: int, most: int) -> int:
    """Drop at most so many that were received before; returns how many. -1: all of them."""
    old = connection.execute(OLD_RECEIVED, (before, most)).fetchall()
    connection.executemany(_FORGET_RECEIVED, old)
    return len(old)
