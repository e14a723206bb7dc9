"""Rows: the memory of the gateway, each changed only by a pure function of what is there.

    what is there ─▶ change (pure) ─▶ stored, if nothing else was stored meanwhile; else decided again

A row is known by its kind and names. It is kept in one gateway's SQLite file (LocalRows), or in a stream that several
gateways share (store/stream), each with a copy in SQLite. Lists are read from the table `rows` in both cases.
A row is stored as a line of JSON, its head, by which it is found in lists; and as it is, the message that it keeps.
"""

import asyncio
import hashlib
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

from pydantic_core import from_json, to_json

from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas import subjects

VERSION = 1
COME_BACK_S = 0.2
ALL = -1
OF_LATE = 512
SOON_S = 0.05

_FIND = "SELECT seq, head, body FROM rows WHERE subject = ?"
_LISTED = ("kind", "state", "at", "run_id", "lane", "by", "late")
_STORED = ", ".join(("subject", "seq", "body", "head", *_LISTED))
_VALUES = ", ".join("?" * 11)
_ADD = f"INSERT INTO rows ({_STORED}) VALUES ({_VALUES}) ON CONFLICT (subject) DO NOTHING"  # noqa: S608 - ours
_CHANGE = f"UPDATE rows SET ({_STORED}) = ({_VALUES}) WHERE subject = ? AND seq = ?"  # noqa: S608 - ours
_REPLACE = f"""
INSERT INTO rows ({_STORED}, position) VALUES ({_VALUES}, ?)
ON CONFLICT (subject) DO UPDATE SET ({_STORED}) = (excluded.{_STORED.replace(", ", ", excluded.")})
"""  # noqa: S608 - ours
_DONE = "kind = ? AND state IN ('published', 'arrived', 'gone', 'dead', 'received', 'named') AND at < ?"
OLD = f"SELECT subject FROM rows WHERE {_DONE}"  # noqa: S608 - ours
FORGET = f"DELETE FROM rows WHERE position IN (SELECT position FROM rows WHERE {_DONE} LIMIT ?)"  # noqa: S608 - ours


log = logging.getLogger(__name__)


Row = tuple[Any, ...]
"""A named tuple, whose class is the kind. With `state`; with `at`, since when, in microseconds since 1970 UTC, if it is
forgotten one day; and with `body`, the message that it keeps. Of those in lists some more are columns of the table."""
R = TypeVar("R", bound=Row)
Change = Callable[[R | None], R | None]
"""The row as it is to be; as it was, or None, to leave it."""


class Newer(TryAgain):
    """A row of a newer version: a gateway of that version sees to it."""


class Rows(Protocol):
    """All methods raise TryAgain and Broken, also for a row that cannot be read, which then stays as it is."""

    @property
    def file(self) -> SqliteFile:
        """Has the table `rows`; of several gateways a copy of it, which may be behind."""

    async def read(self, kind: type[R], *names: str) -> R | None:
        """The newest; what was asked for `soon` may be lacking."""

    async def change(self, kind: type[R], change: Change[R], *names: str) -> R | None:
        """The row after the change, durable on return. `change` may be called several times; what it raises, this
        raises, and nothing is stored."""

    def soon(self, kind: type[R], change: Change[R], *names: str) -> None:
        """Change it with whatever is written next, before any later change. A crash may lose that, and a change that
        raises TryAgain is left out."""

    async def forget(self, kind: type[Row], before: datetime) -> None:
        """Drop rows that are done since before."""


@dataclass(slots=True, weakref_slot=True)
class _Known:
    """What was decided last of a row. `seq`: of what was handed over last to be stored. `is_stored`: it is durable."""

    row: Any
    seq: int
    is_stored: bool = True


class LocalRows:
    """Rows of the one gateway that writes this file. A change is decided over what was decided last, which may be on
    its way to the disk still, and is stored if that was. What is changed soon waits for the next write, so that a row
    which changes again until then is written once."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self._known: WeakValueDictionary[str, _Known] = WeakValueDictionary()
        """Those that are on their way, or of late."""
        self._of_late: deque[_Known] = deque(maxlen=OF_LATE)
        self._soon: dict[str, _Known] = {}
        self._is_due = False

    async def read(self, kind: type[R], *names: str) -> R | None:
        subject = subject_of(kind, *names)
        known = self._newest(kind, subject)
        return cast("R | None", (known if known.is_stored else self._look_up(kind, subject)).row)

    def look_up(self, kind: type[R], *names: str) -> R | None:
        return cast("R | None", self._look_up(kind, subject_of(kind, *names)).row)

    async def change(self, kind: type[R], change: Change[R], *names: str) -> R | None:
        subject = subject_of(kind, *names)
        while True:
            known = self._newest(kind, subject)
            row = change(known.row)
            if row is not None and row != known.row:
                if await self._stored(subject, known, row):
                    return row
            elif known.is_stored or await self._all_stored(subject, known):
                return cast("R | None", known.row)

    def soon(self, kind: type[R], change: Change[R], *names: str) -> None:
        subject = subject_of(kind, *names)
        with suppress(TryAgain):
            known = self._newest(kind, subject)
            row = change(known.row)
            if row is not None and row != known.row:
                if not self._is_due:
                    self._is_due = True
                    asyncio.get_running_loop().call_later(SOON_S, self._now_due)
                known.row, known.is_stored = row, False
                self._soon[subject] = known

    async def forget(self, kind: type[Row], before: datetime) -> None:
        old = kind_of(kind), microseconds(before)
        await self.file.forget(lambda connection, most: connection.execute(FORGET, (*old, most)).rowcount)
        for subject in [subject for subject, known in self._known.items() if known.is_stored]:
            self._known.pop(subject, None)

    def _newest(self, kind: type[Row], subject: str) -> _Known:
        known = self._known.get(subject)
        if known is None:
            known = self._known[subject] = self._look_up(kind, subject)
        self._of_late.append(known)
        return known

    def _look_up(self, kind: type[Row], subject: str) -> _Known:
        found = self.file.look_up(_FIND, (subject,))
        if not found:
            return _Known(None, 0)
        seq, head, body = found[0]
        return _Known(read_row(kind, subject, head, body), seq)

    async def _stored(self, subject: str, known: _Known, row: Row) -> bool:
        """False where what it was decided over was not stored: to be decided again."""
        self._soon.pop(subject, None)
        self.hand_over()
        work = _work(subject, known, row)
        is_stored = False
        try:
            is_stored = await self.file.write(work)
        finally:
            if not is_stored:
                self._known.pop(subject, None)
        known.is_stored = known.row is row
        return is_stored

    async def _all_stored(self, subject: str, known: _Known) -> bool:
        self.hand_over()
        await self.file.write(lambda connection: connection.in_transaction)
        return self._known.get(subject) is known

    def _now_due(self) -> None:
        self._is_due = False
        self.hand_over()

    def hand_over(self) -> None:
        soon, self._soon = self._soon, {}
        for subject, known in soon.items():
            self.file.later(_work(subject, known, known.row))


def _work(subject: str, known: _Known, row: Any) -> Callable[[sqlite3.Connection], bool]:
    """Stores the row if what it was decided over is there. It holds `known` until then."""
    after, known.row, known.seq, known.is_stored = known.seq, row, known.seq + 1, False
    return partial(_put, known, after, _values(subject, after + 1, columns_in(row), row.body))


def _put(_: _Known, after: int, values: tuple[Any, ...], connection: sqlite3.Connection) -> bool:
    if after:
        return connection.execute(_CHANGE, (*values, values[0], after)).rowcount == 1
    return connection.execute(_ADD, values).rowcount == 1


def put(connection: sqlite3.Connection, subject: str, seq: int, columns: Mapping[str, Any], body: bytes) -> None:
    """In place of what is there. `columns`: what its head says."""
    connection.execute(_REPLACE, (*_values(subject, seq, columns, body), columns.get("position") or seq))


def _values(subject: str, seq: int, columns: Mapping[str, Any], body: bytes) -> tuple[Any, ...]:
    *listed, late = [columns.get(name) for name in _LISTED]
    return subject, seq, body, head_of(columns), *listed, late and late[0]


def kind_of(kind: type[Row]) -> str:
    return kind.__name__.lower()


def subject_of(kind: type[Row], *names: str) -> str:
    return _subject(kind_of(kind), names)


@lru_cache(OF_LATE)
def _subject(kind: str, names: tuple[str, ...]) -> str:
    return f"{subjects.LEDGER}.{kind}.{hashlib.sha256(to_json(names)).hexdigest()[:32]}"


def head_of(columns: Mapping[str, Any]) -> str:
    return to_json(columns).decode()


def columns_in(row: Any) -> dict[str, Any]:
    """What its head says."""
    said = row._asdict()
    del said["body"]
    return {"version": VERSION, "kind": kind_of(type(row)), **said}


def read_row(kind: type[R], subject: str, head: str, body: bytes) -> R:
    """Raises Newer, and TryAgain for what no gateway wrote."""
    with suppress(ValueError, TypeError):
        columns = columns_of(head)
        named: Any = kind
        return cast("R", named(**{name: _value(columns[name]) for name in named._fields if name in columns}, body=body))
    raise TryAgain(f"what is stored at {subject} was written by no gateway", COME_BACK_S)


def columns_of(head: str) -> dict[str, Any]:
    """Raises Newer, and ValueError for what no gateway wrote."""
    columns = from_json(head, allow_inf_nan=False)
    version = columns.get("version") if isinstance(columns, dict) else None
    if version is None:
        raise ValueError("it says no version")
    if version != VERSION:
        raise Newer(f"a newer gateway wrote it (version {version}): it is left to that one. Upgrade this one")
    return dict(columns)


def listed(kind: type[R], found: Iterable[Sequence[Any]]) -> list[R]:
    """Rows of a list: subject, head and body of each. One that cannot be read is left out, and logged."""
    rows = []
    for one in found:
        try:
            rows.append(read_row(kind, *one))
        except TryAgain as error:
            log.error("a row is left out", extra={"subject": one[0], "why": str(error)})  # noqa: TRY400
    return rows


def _value(said: Any) -> Any:
    return tuple(said) if isinstance(said, list) else said
