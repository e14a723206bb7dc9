"""Rows: the memory of the gateway, each changed only by a pure function of what is there.

    what is there ─▶ change (pure) ─▶ stored, if nothing else was stored meanwhile; else decided again

A row is known by its kind and names. It is stored as a line of JSON, its head, by which it is found in lists; and as it
is, the message that it keeps. A carrier stores it (store/carriers). Lists are read from the table `rows` in SQLite.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile, Values
from schemas import subjects

VERSION = 1
COME_BACK_S = 0.2
AT_ONCE = 64
TRIES = 100

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}

log = logging.getLogger(__name__)


R = TypeVar("R")
"""A dataclass of values, whose class is the kind. With `state`; with `at`, since when, if it is forgotten one day; and
with `body`, the message that it keeps. Of those in lists some more are columns of the table."""
Change = Callable[[R | None], R | None]
"""The row as it is to be; as it was, or None, to leave it."""


class Stored(NamedTuple):
    """`seq`: of its newest change; 0 for no row. `position`: of its first one, which is its place in lists."""

    head: str
    body: bytes
    seq: int
    position: int = 0


NOTHING = Stored("", b"", 0)


class Overtaken(Exception):
    """Another has stored a newer one: load and decide again."""


class Carrier(Protocol):
    """All methods raise TryAgain and Broken."""

    @property
    def file(self) -> SqliteFile:
        """Has the table `rows`; of several gateways a copy of it, which may be behind."""

    async def load(self, subject: str) -> Stored:
        """The newest."""

    async def store(self, subject: str, columns: dict[str, Any], body: bytes, after: Stored) -> None:
        """Durable on return. Raises Overtaken where another than `after` is the newest."""

    async def forget(self, kind: str, before: datetime) -> None: ...


class Rows:
    """All methods raise TryAgain and Broken, also for a row that cannot be read, which then stays as it is. `by`: this
    gateway among others."""

    def __init__(self, carrier: Carrier, *, by: str = "") -> None:
        self.carrier = carrier
        self.by = by

    async def read(self, kind: type[R], *names: str) -> R | None:
        subject = subject_of(kind, *names)
        stored = await self.carrier.load(subject)
        return read_row(kind, subject, stored) if stored.seq else None

    def listed(self, kind: type[R], statement: str, values: Values = ()) -> list[R]:
        """Rows of a statement that selects `subject, head, body`. One that cannot be read is left out, and logged."""
        rows = []
        for subject, head, body in self.look_up(statement, values):
            try:
                rows.append(read_row(kind, subject, Stored(head, body, 1)))
            except TryAgain as error:
                log.error("a row is left out", extra={"subject": subject, "why": str(error)})  # noqa: TRY400
        return rows

    def look_up(self, statement: str, values: Values = ()) -> list[Any]:
        return self.carrier.file.look_up(statement, values)

    async def change(self, kind: type[R], change: Change[R], *names: str) -> R | None:
        """The row after the change, durable on return. `change` may be called several times; what it raises, this
        raises, and nothing is stored."""
        subject = subject_of(kind, *names)
        for _ in range(TRIES):
            before = await self.carrier.load(subject)
            there = read_row(kind, subject, before) if before.seq else None
            row = change(there)
            if row is None or row == there:
                return there
            with suppress(Overtaken):
                await self.carrier.store(subject, columns_in(row), row.body, before)  # type: ignore[attr-defined] # all have one
                return row
        raise TryAgain(f"{subject} is changed by others all the time: nothing of this change is stored", COME_BACK_S)

    async def forget(self, kind: type[Any], before: datetime) -> None:
        """Drop rows that are done since before."""
        await self.carrier.forget(kind_of(kind), before)


def kind_of(kind: type[Any]) -> str:
    return kind.__name__.lower()


def subject_of(kind: type[Any], *names: str) -> str:
    return _subject(kind_of(kind), names)


@lru_cache(512)
def _subject(kind: str, names: tuple[str, ...]) -> str:
    return f"{subjects.LEDGER}.{kind}.{hashlib.sha256(to_json(names)).hexdigest()[:32]}"


def head_of(columns: Mapping[str, Any]) -> str:
    return to_json(columns).decode()


def columns_in(row: Any) -> dict[str, Any]:
    """What its head says."""
    said = {one.name: getattr(row, one.name) for one in fields(row) if one.name != "body"}
    return {"version": VERSION, "kind": kind_of(type(row)), **said}


def read_row(kind: type[R], subject: str, stored: Stored) -> R:
    """Raises TryAgain for what no gateway of this version wrote."""
    with suppress(ValueError):
        reads = _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))
        return cast("R", reads.validate_python(columns_of(stored.head) | {"body": stored.body}))
    why = f"what is stored at {subject} was written by no gateway of this version: it is left to that one"
    raise TryAgain(why, COME_BACK_S)


def columns_of(head: str) -> dict[str, Any]:
    """Raises ValueError for what no gateway of this version wrote."""
    columns = from_json(head, allow_inf_nan=False)
    if not isinstance(columns, dict) or columns.get("version") != VERSION:
        raise ValueError("it says no version, or another")
    return columns
