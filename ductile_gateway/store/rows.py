"""Rows of the gateway's store, each changed only by a pure function of the current row.

    load ─▶ change (pure) ─▶ store, if no newer row was stored meanwhile; else load again

A row has a kind and names. It is stored by a carrier as its head, a line of JSON, and its body, a message. Lists are
read from the table `rows` in SQLite.
"""

import asyncio
import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache, lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import AppendConflict, SharedLog
from groundwork.service.errors import TryAgain, in_time, patiently
from groundwork.sqlite.file import SqliteFile, Values, microseconds
from schemas import subjects
from schemas.values import dataclass

VERSION = 1
COME_BACK_S = 0.2
AT_ONCE, FORGOTTEN_AT_ONCE = 64, 500
TRIES = 100

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)

log = logging.getLogger(__name__)


R = TypeVar("R")
"""A dataclass without slots, whose class is the kind. `state`; `at`: age for its retention; `body`: the message."""
Change = Callable[[R | None], R | None]
"""Returns the new row; the same row or None changes nothing."""


class StoredRow(NamedTuple):
    """`seq`: of the newest change, 0 for no row. `position`: of the first one, for the order of lists."""

    head: str
    body: bytes
    seq: int
    position: int = 0


NOTHING = StoredRow("", b"", 0)


@dataclass(eq=False)
class Version(Generic[R]):
    """A row as it was read or stored last; `stored` is None before."""

    row: R | None = None
    stored: StoredRow | None = None


def kind_of(kind: type[Any]) -> str:
    return kind.__name__.lower()


def _subject_of(kind: type[Any], *names: str) -> str:
    return f"{subjects.LEDGER}.{kind_of(kind)}.{hashlib.sha256(to_json(names)).hexdigest()[:32]}"


subject_of: Callable[..., str] = lru_cache(512)(_subject_of)


def head_of(columns: Mapping[str, Any]) -> str:
    return to_json(columns).decode()


def columns_in(row: Any) -> dict[str, Any]:
    columns = {"version": VERSION, "kind": kind_of(type(row)), **vars(row)}
    del columns["body"]
    return columns


def read_row(kind: type[R], subject: str, stored: StoredRow) -> R:
    """Raises TryAgain for a row of another version."""
    with suppress(ValueError):
        return cast("R", _adapter(kind).validate_python(columns_of(stored.head) | {"body": stored.body}))
    why = f"what is stored at {subject} was written by no gateway of this version: it is left to that one"
    raise TryAgain(why, COME_BACK_S)


def columns_of(head: str) -> dict[str, Any]:
    """Raises ValueError for a head of another version."""
    columns = from_json(head, allow_inf_nan=False)
    if not isinstance(columns, dict) or columns.get("version") != VERSION:
        raise ValueError("it says no version, or another")
    return columns


PATIENCE_S = 20.0
"""Electing a leader takes 4 to 9 s; asking once may take 15 s."""
SHOWN_WITHIN_S = 0.5
ALL = -1

_FIND = "SELECT head, body, seq, position FROM rows WHERE subject = ?"
_STORED = "subject, seq, body, head, kind, state, at, run_id, lane, by, is_late"
_VALUES = ", ".join("?" * 11)
_ADD = f"INSERT INTO rows ({_STORED}) VALUES ({_VALUES}) ON CONFLICT (subject) DO NOTHING"  # noqa: S608 - ours
_CHANGE = f"UPDATE rows SET ({_STORED}) = ({_VALUES}) WHERE subject = ? AND seq = ?"  # noqa: S608 - ours
_REPLACE = f"INSERT OR REPLACE INTO rows ({_STORED}, position) VALUES ({_VALUES}, ?)"  # noqa: S608 - ours
_DONE = "kind = ? AND state IN ('answered', 'arrived', 'gone', 'dead', 'received', 'named') AND at < ?"
OLD = f"SELECT subject, seq FROM rows WHERE {_DONE}"  # noqa: S608 - ours
_FORGET = f"DELETE FROM rows WHERE position IN (SELECT position FROM rows WHERE {_DONE} LIMIT ?)"  # noqa: S608 - ours

_INSTEAD = {"Nats-Rollup": "sub"}
_FORGOTTEN = f"{subjects.LEDGER}.forgotten"
"""Subject of deletions by kind, for the copies."""


class FileCarrier:
    """The database of the only gateway. Methods raise TryAgain and Broken."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file

    async def load(self, subject: str) -> StoredRow:
        found = self.file.look_up(_FIND, (subject,))
        return StoredRow(*found[0]) if found else NOTHING

    def store(self, subject: str, columns: dict[str, Any], body: bytes, after: StoredRow) -> Awaitable[StoredRow]:
        """Durable once awaited. Raises AppendConflict if `after` is no longer the newest."""
        values = _values(subject, after.seq + 1, columns, body)
        change = (_CHANGE, (*values, subject, after.seq)) if after.seq else (_ADD, values)

        def stored(connection: sqlite3.Connection) -> StoredRow:
            if not connection.execute(*change).rowcount:
                raise AppendConflict(f"{subject} has a newer row")
            return after._replace(seq=after.seq + 1)

        return self.file.write(stored)

    async def forget(self, kind: type[Any], before: datetime) -> None:
        """Deletes rows that ended before."""
        some = kind_of(kind), microseconds(before), FORGOTTEN_AT_ONCE
        while await self.file.write(lambda connection: connection.execute(_FORGET, some).rowcount) == FORGOTTEN_AT_ONCE:
            pass


@dataclass(eq=False)
class StreamCarrier:
    """The stream of several gateways. `file`: the local copy. `copied`: returns once the copy has a sequence, or raises
    TryAgain. Without them there are no lists, and nothing is deleted."""

    _log: SharedLog
    _file: SqliteFile | None = None
    _copied: Callable[[int], Awaitable[None]] | None = None

    @property
    def file(self) -> SqliteFile:
        if self._file is None:
            raise TypeError("there is no copy to list")
        return self._file

    async def load(self, subject: str) -> StoredRow:
        """Waits for an election of the stream's leader: a call that was made must be recorded."""
        async with in_time(f"the server with {subject}", PATIENCE_S):
            newest = await patiently(partial(self._log.newest, subject), COME_BACK_S)
        return _read(newest) if newest else NOTHING

    async def store(self, subject: str, columns: dict[str, Any], body: bytes, after: StoredRow) -> StoredRow:
        position = {"position": after.position} if after.position else {}
        seq = await self._log.append(subject, fact_of(columns | position, body), after=after.seq, headers=_INSTEAD)
        await self._shown(seq)
        return after._replace(seq=seq, position=after.position or seq)

    async def forget(self, kind: type[Any], before: datetime) -> None:
        name, at = kind_of(kind), microseconds(before)
        old = await self.file.read(OLD, (name, at))
        for first in range(0, len(old), AT_ONCE):  # none that was changed since, for the copy may be behind
            some = old[first : first + AT_ONCE]
            await asyncio.gather(*(self._log.purge(subject, up_to=seq) for subject, seq in some))
        if old:
            fact = fact_of({"version": VERSION, "kind": name, "before": at}, b"")
            await self._shown(await self._log.append(f"{_FORGOTTEN}.{name}", fact, after=None, headers=_INSTEAD))

    async def _shown(self, seq: int) -> None:
        """Returns once the local copy has it, or after a moment: no decision depends on that."""
        if self._copied:
            with contextlib.suppress(TryAgain, TimeoutError):
                async with asyncio.timeout(SHOWN_WITHIN_S):
                    await self._copied(seq)


def fact_of(columns: Mapping[str, Any], body: bytes) -> bytes:
    """A row as one message: its head as a line, and its body."""
    return head_of(columns).encode() + b"\n" + body


def _read(fact: StoredMessage) -> StoredRow:
    head, _, body = fact.body.partition(b"\n")
    said = head.decode(errors="replace")
    position = fact.seq
    with contextlib.suppress(ValueError):
        position = columns_of(said).get("position") or fact.seq
    return StoredRow(said, body, fact.seq, position)


def copy(connection: sqlite3.Connection, fact: StoredMessage) -> None:
    """Applies a message of the stream to the copy, in order."""
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
    connection.execute(_REPLACE, (*_values(subject, seq, columns, body), columns.get("position") or seq))


def _values(subject: str, seq: int, columns: Mapping[str, Any], body: bytes) -> tuple[Any, ...]:
    said, at = columns.get, columns.get("at")
    if at is not None:
        at = microseconds(datetime.fromisoformat(at) if isinstance(at, str) else at)
    listed = said("kind"), said("state"), at, said("run_id"), said("lane"), said("by"), said("late") is not None
    return subject, seq, body, head_of(columns), *listed


class Rows:
    """Methods raise TryAgain and Broken, also for a row that cannot be read, which stays as it is. `by`: this gateway
    among several."""

    def __init__(self, carrier: FileCarrier | StreamCarrier, *, by: str = "") -> None:
        self.carrier = carrier
        self.by = by

    async def read(self, kind: type[R], *names: str, seen: Version[R] | None = None) -> R | None:
        """`seen`: takes note of what was read."""
        seen, subject = seen or Version(), subject_of(kind, *names)
        stored = await self.carrier.load(subject)
        seen.row, seen.stored = read_row(kind, subject, stored) if stored.seq else None, stored
        return seen.row

    def listed(self, kind: type[R], statement: str, values: Values = ()) -> list[R]:
        """Rows of a statement that selects `subject, head, body`. Unreadable rows are logged and left out."""
        rows = []
        for subject, head, body in self.look_up(statement, values):
            try:
                rows.append(read_row(kind, subject, StoredRow(head, body, 1)))
            except TryAgain as error:
                log.error("a row is left out", extra={"subject": subject, "why": str(error)})  # noqa: TRY400
        return rows

    def look_up(self, statement: str, values: Values = ()) -> list[Any]:
        return self.carrier.file.look_up(statement, values)

    async def change(self, kind: type[R], change: Change[R], *names: str, seen: Version[R] | None = None) -> R | None:
        """Returns the row after the change, durable on return. `change` may be called several times; if it raises,
        nothing is stored. `seen`: the row before, which is not read then, for a change that always stores."""
        seen, subject = seen or Version(), subject_of(kind, *names)
        for _ in range(TRIES):
            if seen.stored is None:
                await self.read(kind, *names, seen=seen)
            row, before = change(seen.row), seen.stored or NOTHING
            if row is None or row == seen.row:
                return seen.row
            seen.stored = None
            with suppress(AppendConflict):
                seen.stored = await self.carrier.store(subject, columns_in(row), row.body, before)  # type: ignore[attr-defined] # all have one
                seen.row = row
                return row
        raise TryAgain(f"{subject} is changed by others all the time: nothing of this change is stored", COME_BACK_S)
