"""The outbox and the record of events from outside that several gateways share. Fills the ports Outbox and Deliveries.

A delivery belongs to the gateway that added it; the heir of one that is gone claims each right before it is sent.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from ductile_gateway.outbound.dispatch import Outcome
from ductile_gateway.outbound.notifications import Notification
from ductile_gateway.store.outbox import OLD, OLD_RECEIVED, SqliteDeliveries, SqliteOutbox, read_delivery
from ductile_gateway.store.shared import owed
from ductile_gateway.store.shared.rows import (
    NOTIFICATION,
    RECEIVED,
    Members,
    Row,
    Rows,
    framed,
    subject_of,
    subject_of_forgotten,
    told_before,
    unframed,
)
from groundwork.sqlite.file import SqliteFile, microseconds

ALL = -1
_OWNERS = "SELECT DISTINCT by FROM outbox WHERE outcome IS NULL"
_IS_GONE = "SELECT 1 FROM outbox WHERE outcome = 'gone' AND target = ? AND run_id = ? LIMIT 1"
_WAITING = "SELECT key FROM outbox WHERE outcome IS NULL AND target = ? AND run_id = ?"
_LANES = """
SELECT lane FROM (SELECT DISTINCT lane FROM outbox WHERE outcome IS NULL) AS waiting
WHERE EXISTS (
    SELECT 1 FROM heads
    WHERE heads.lane = waiting.lane AND due_at <= ? AND by IN (SELECT value FROM json_each(?))
)
"""
_DUE = """
SELECT target, lane, key, run_id, type, url, body, accepted_at, tries
FROM heads WHERE lane = ? AND due_at <= ? AND by IN (SELECT value FROM json_each(?)) ORDER BY due_at, position LIMIT ?
"""


class SharedOutbox(SqliteOutbox):
    def __init__(self, file: SqliteFile, rows: Rows, *, members: Members) -> None:
        super().__init__(file)
        self._rows = rows
        self._members = members

    async def add(self, deliveries: Sequence[Notification]) -> None:
        for delivery in deliveries:
            if not self._file.look_up(_IS_GONE, (delivery.target, delivery.run_id)):
                fact = owed.written(owed.owed(delivery, by=self._members.me))
                await self._rows.change(_subject(delivery), partial(_unless_there, fact=fact))

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        return [lane for (lane,) in self._file.look_up(_LANES, (microseconds(now), self._owners()))]

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Notification]:
        values = (lane, microseconds(now), self._owners(), limit)
        return [read_delivery(row) for row in self._file.look_up(_DUE, values)]

    async def claim(self, delivery: Notification) -> bool:
        mine = partial(owed.claimed, by=self._members.me, may=self._may)
        row = await self._rows.change(_subject(delivery), partial(owed.changed, change=mine))
        one = owed.read_fact(row.body, seq=row.seq) if row.body is not None else None
        return one is not None and one.outcome is None and one.by == self._members.me

    async def settle(self, delivery: Notification, outcome: Outcome, *, at: datetime) -> None:
        change = partial(owed.settled, outcome=outcome, at=at, tries=delivery.tries)
        await self._rows.change(_subject(delivery), partial(owed.changed, change=change))
        if outcome == "gone":
            for (key,) in self._file.look_up(_WAITING, (delivery.target, delivery.run_id)):
                subject = subject_of(NOTIFICATION, delivery.target, key)
                await self._rows.change(
                    subject, partial(owed.changed, change=partial(owed.settled, outcome=outcome, at=at))
                )

    async def postpone(self, delivery: Notification, due_at: datetime, *, why: str) -> None:
        change = partial(owed.postponed, due_at=due_at, tries=delivery.tries, why=why, by=self._members.me)
        await self._rows.change(_subject(delivery), partial(owed.changed, change=change))

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        if old := await self._file.read(OLD, (before, ALL)):
            await self._rows.forget([subject_of(NOTIFICATION, *names) for names in old])
            await self._rows.tell(subject_of_forgotten(NOTIFICATION), told_before(before))

    def _owners(self) -> str:
        return json.dumps([owner for (owner,) in self._file.look_up(_OWNERS) if self._may(owner)])

    def _may(self, owner: str) -> bool:
        return self._members.mine(owner, owner)


def _subject(delivery: Notification) -> str:
    return subject_of(NOTIFICATION, delivery.target, delivery.key)


def _unless_there(row: Row, *, fact: bytes) -> bytes | None:
    return fact if row.body is None else None


class SharedDeliveries(SqliteDeliveries):
    """What was received, by whichever gateway. `file` is the own copy."""

    def __init__(self, file: SqliteFile, rows: Rows) -> None:
        super().__init__(file)
        self._rows = rows

    async def find(self, source: str, identity: str) -> str | None:
        row = await self._rows.read(subject_of(RECEIVED, source, identity))
        return None if row.body is None else str(unframed(row.body)[0]["event_key"])

    async def record(self, source: str, identity: str, *, event_key: str, at: datetime) -> None:
        columns = {"source": source, "identity": identity, "event_key": event_key, "received_at": microseconds(at)}

        def work(row: Row) -> bytes | None:
            return framed(columns) if row.body is None else None

        await self._rows.change(subject_of(RECEIVED, source, identity), work)

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        if old := await self._file.read(OLD_RECEIVED, (before, ALL)):
            await self._rows.forget([subject_of(RECEIVED, *names) for names in old])
            await self._rows.tell(subject_of_forgotten(RECEIVED), told_before(before))
