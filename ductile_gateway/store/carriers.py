"""Where rows are stored: in the file of one gateway, or in a stream that several share, each with a copy in SQLite.

In the stream each row is the newest fact of a subject of its own, whole in it. Decisions are made over the newest fact,
as the leader has it, never over a copy, which may be behind.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from ductile_gateway.store.rows import (
    AT_ONCE,
    COME_BACK_S,
    NOTHING,
    VERSION,
    Overtaken,
    Stored,
    columns_of,
    head_of,
)
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas import subjects

PATIENCE_S = 10.0
"""Electing a leader takes 4 to 9 s."""
SHOWN_WITHIN_S = 0.5
ALL = -1

_FIND = "SELECT head, body, seq, position FROM rows WHERE subject = ?"
_LISTED = ("kind", "state", "at", "run_id", "lane", "by", "is_late")
_STORED = ", ".join(("subject", "seq", "body", "head", *_LISTED))
_VALUES = ", ".join("?" * 11)
_ADD = f"INSERT INTO rows ({_STORED}) VALUES ({_VALUES}) ON CONFLICT (subject) DO NOTHING"  # noqa: S608 - ours
_CHANGE = f"UPDATE rows SET ({_STORED}) = ({_VALUES}) WHERE subject = ? AND seq = ?"  # noqa: S608 - ours
_REPLACE = f"INSERT OR REPLACE INTO rows ({_STORED}, position) VALUES ({_VALUES}, ?)"  # noqa: S608 - ours
_DONE = "kind = ? AND state IN ('answered', 'arrived', 'gone', 'dead', 'received', 'named') AND at < ?"
OLD = f"SELECT subject FROM rows WHERE {_DONE}"  # noqa: S608 - ours
_FORGET = f"DELETE FROM rows WHERE position IN (SELECT position FROM rows WHERE {_DONE} LIMIT ?)"  # noqa: S608 - ours

_INSTEAD = {"Nats-Rollup": "sub"}
_FORGOTTEN = f"{subjects.LEDGER}.forgotten"
"""Tells copies that rows are no more, by kind."""

log = logging.getLogger(__name__)


class InFile:
    """The file of the one gateway that writes it. Fills the port Carrier."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file

    async def load(self, subject: str) -> Stored:
        found = self.file.look_up(_FIND, (subject,))
        return Stored(*found[0]) if found else NOTHING

    async def store(self, subject: str, columns: dict[str, Any], body: bytes, after: Stored) -> None:
        if not await self.file.write(partial(_stored, _values(subject, after.seq + 1, columns, body), after.seq)):
            raise Overtaken

    async def forget(self, kind: str, before: datetime) -> None:
        old = kind, microseconds(before)
        await self.file.forget(lambda connection, most: connection.execute(_FORGET, (*old, most)).rowcount)


def _stored(values: tuple[Any, ...], after: int, connection: sqlite3.Connection) -> bool:
    change = (_CHANGE, (*values, values[0], after)) if after else (_ADD, values)
    return connection.execute(*change).rowcount == 1


class InStream:
    """The stream of several. Fills the port Carrier. `file` has the copy; `copied` returns when it has the fact of a
    sequence, or raises TryAgain after a while. Without them there are no lists, and nothing is forgotten."""

    def __init__(
        self, log: SharedLog, file: SqliteFile | None = None, copied: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        self._log = log
        self._file = file
        self._copied = copied

    @property
    def file(self) -> SqliteFile:
        if self._file is None:
            raise TypeError("there is no copy to list")
        return self._file

    async def load(self, subject: str) -> Stored:
        """An election is waited for: what is to be written down has happened."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                newest = await self._log.newest(subject)
            except TryAgain:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(COME_BACK_S)
            else:
                return _read(newest) if newest else NOTHING

    async def store(self, subject: str, columns: dict[str, Any], body: bytes, after: Stored) -> None:
        position = {"position": after.position} if after.position else {}
        try:
            seq = await self._log.append(subject, fact_of(columns | position, body), after=after.seq, headers=_INSTEAD)
        except Moved as error:
            raise Overtaken from error
        await self._shown(seq)

    async def forget(self, kind: str, before: datetime) -> None:
        old = [subject for (subject,) in await self.file.read(OLD, (kind, microseconds(before)))]
        for first in range(0, len(old), AT_ONCE):
            await asyncio.gather(*map(self._log.purge, old[first : first + AT_ONCE]))
        if old:
            told = fact_of({"version": VERSION, "kind": kind, "before": microseconds(before)}, b"")
            await self._shown(await self._log.append(f"{_FORGOTTEN}.{kind}", told, after=None, headers=_INSTEAD))

    async def _shown(self, seq: int) -> None:
        """Return when it is in the own copy, or soon: nothing is decided over that."""
        if self._copied:
            with contextlib.suppress(TryAgain, TimeoutError):
                async with asyncio.timeout(SHOWN_WITHIN_S):
                    await self._copied(seq)


def fact_of(columns: Mapping[str, Any], body: bytes) -> bytes:
    """A row as one message: its head on a line, and its body. The later ones say the position of the first."""
    return head_of(columns).encode() + b"\n" + body


def _read(fact: StoredMessage) -> Stored:
    head, _, body = fact.body.partition(b"\n")
    said = head.decode(errors="replace")
    position = fact.seq
    with contextlib.suppress(ValueError):
        position = columns_of(said).get("position") or fact.seq
    return Stored(said, body, fact.seq, position)


def copy(connection: sqlite3.Connection, fact: StoredMessage) -> None:
    """Apply a fact to the table of rows, in the order of the stream."""
    stored = _read(fact)
    try:
        columns = columns_of(stored.head)
        if fact.subject.startswith(f"{_FORGOTTEN}."):
            connection.execute(_FORGET, (columns["kind"], int(columns["before"]), ALL))
        else:
            put(connection, fact.subject, stored.seq, columns, stored.body)
    except (ValueError, KeyError, TypeError, RecursionError, sqlite3.IntegrityError) as error:
        known = {"subject": fact.subject, "seq": fact.seq, "why": str(error)}
        log.error("a fact of the gateways cannot be read: it is left out", extra=known)  # noqa: TRY400


def put(connection: sqlite3.Connection, subject: str, seq: int, columns: Mapping[str, Any], body: bytes) -> None:
    """In place of what is there. `columns`: what its head says."""
    connection.execute(_REPLACE, (*_values(subject, seq, columns, body), columns.get("position") or seq))


def _values(subject: str, seq: int, columns: Mapping[str, Any], body: bytes) -> tuple[Any, ...]:
    listed = {name: columns.get(name) for name in _LISTED}
    if (at := listed["at"]) is not None:
        listed["at"] = microseconds(datetime.fromisoformat(at) if isinstance(at, str) else at)
    listed["is_late"] = columns.get("late") is not None
    return subject, seq, body, head_of(columns), *listed.values()
