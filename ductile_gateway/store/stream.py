"""Rows that several gateways share: each is the newest fact of a subject of its own, whole in it.

    newest fact, as the leader has it ─▶ change (pure) ─▶ append, if it is the newest still ─▶ every gateway's copy

Decisions are made over the newest fact, never over a copy, which may be behind. Of two concurrent changes one decides
again. What is changed soon is written a moment later. A fact that a copy cannot read is left out of it, and logged.
"""

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn, Protocol

from ductile_gateway.store.rows import (
    ALL,
    FORGET,
    OLD,
    VERSION,
    Change,
    Newer,
    R,
    Row,
    columns_in,
    columns_of,
    head_of,
    kind_of,
    put,
    read_row,
    subject_of,
)
from groundwork.nats.shared_log import Fact, Moved
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas import subjects

TRIES = 20
COME_BACK_S = 0.2
PATIENCE_S = 10.0
"""Electing a leader takes 4 to 9 s."""
SHOWN_WITHIN_S = 0.5
SOON_S = 0.2
AT_ONCE = 16

_INSTEAD = {"Nats-Rollup": "sub"}
_FORGOTTEN = f"{subjects.LEDGER}.forgotten"
"""Tells copies that rows are no more, by kind."""

log = logging.getLogger(__name__)


class Log(Protocol):
    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = ...
    ) -> int: ...

    async def newest(self, subject: str) -> Fact | None: ...

    async def purge(self, subject: str) -> None: ...


class StreamRows:
    """For one that has no copy: there are no lists, and nothing is changed soon or forgotten."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._soon: defaultdict[str, list[tuple[type[Any], Change[Any]]]] = defaultdict(list)

    async def read(self, kind: type[R], *names: str) -> R | None:
        subject = subject_of(kind, *names)
        return self._after_soon(subject, (await self._read(kind, subject))[0])

    async def change(self, kind: type[R], change: Change[R], *names: str) -> R | None:
        return await self._change(kind, subject_of(kind, *names), change)

    async def _change(self, kind: type[R], subject: str, change: Change[R]) -> R | None:
        for _ in range(TRIES):
            soon = list(self._soon.get(subject, ()))
            there, seq, first = await self._read(kind, subject)
            row = change(self._after_soon(subject, there))
            if row is not None and row != there:
                position = {"position": first} if first else {}
                try:
                    seq = await self._log.append(subject, fact_of(row, **position), after=seq, headers=_INSTEAD)
                except Moved:
                    continue
            self._written(subject, soon)
            await self._shown(seq)
            return row
        raise TryAgain(f"{subject} is changed by others all the time: nothing of this change is stored", COME_BACK_S)

    async def _read(self, kind: type[R], subject: str) -> tuple[R | None, int, int]:
        """As the leader has it; with the sequences of its newest and of its first fact, 0 where there is none. An
        election is waited for: what is to be written down has happened."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                newest = await self._log.newest(subject)
            except TryAgain:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(COME_BACK_S)
            else:
                if newest is None:
                    return None, 0, 0
                head, _, body = newest.body.partition(b"\n")
                row = read_row(kind, subject, head.decode(errors="replace"), body)
                return row, newest.seq, columns_of(head.decode()).get("position") or newest.seq

    async def _shown(self, seq: int) -> None:
        """Return when it is in the own copy, or soon: nothing is decided over that."""

    def _after_soon(self, subject: str, row: R | None) -> R | None:
        for _, change in self._soon.get(subject, ()):
            with contextlib.suppress(TryAgain):  # another gateway was faster
                row = change(row)
        return row

    def _written(self, subject: str, soon: list[tuple[type[Any], Change[Any]]]) -> None:
        self._soon[subject] = [one for one in self._soon[subject] if one not in soon]
        if not self._soon[subject]:
            del self._soon[subject]


class CopiedRows(StreamRows):
    """Fills the port Rows. `file` has the copy; `copied` returns when it has the fact of a sequence, or raises TryAgain
    after a while."""

    def __init__(self, log: Log, file: SqliteFile, copied: Callable[[int], Awaitable[None]]) -> None:
        super().__init__(log)
        self.file = file
        self._copied = copied
        self._asked = asyncio.Event()

    def soon(self, kind: type[R], change: Change[R], *names: str) -> None:
        self._soon[subject_of(kind, *names)].append((kind, change))
        self._asked.set()

    async def write_soon(self) -> NoReturn:
        while True:
            await self._asked.wait()
            await asyncio.sleep(SOON_S)
            self._asked.clear()
            asked = [(subject, changes[0][0]) for subject, changes in self._soon.items()]
            for first in range(0, len(asked), AT_ONCE):
                await asyncio.gather(*(self._write_soon(*one) for one in asked[first : first + AT_ONCE]))

    async def forget(self, kind: type[Row], before: datetime) -> None:
        values = kind_of(kind), microseconds(before)
        old = [subject for (subject,) in await self.file.read(OLD, values)]
        for first in range(0, len(old), AT_ONCE):
            await asyncio.gather(*map(self._log.purge, old[first : first + AT_ONCE]))
        if old:
            told = json.dumps({"version": VERSION, "kind": kind_of(kind), "before": values[1]}).encode()
            subject = f"{_FORGOTTEN}.{kind_of(kind)}"
            await self._shown(await self._log.append(subject, told, after=None, headers=_INSTEAD))

    async def _shown(self, seq: int) -> None:
        with contextlib.suppress(TryAgain, TimeoutError):
            async with asyncio.timeout(SHOWN_WITHIN_S):
                await self._copied(seq)

    async def _write_soon(self, subject: str, kind: type[Row]) -> None:
        try:
            await self._change(kind, subject, lambda row: row)
        except TryAgain as error:
            log.debug("written later", extra={"subject": subject, "why": str(error)})
            self._asked.set()


def fact_of(row: Any, **position: int) -> bytes:
    """A row as one message: its head on a line, and its body. `position`: the sequence of its first fact, said in the
    later ones."""
    body: bytes = row.body
    return head_of(columns_in(row) | position).encode() + b"\n" + body


def copy(connection: sqlite3.Connection, fact: Fact) -> None:
    """Apply a fact to the table of rows, in the order of the stream."""
    head, _, body = fact.body.partition(b"\n")
    try:
        columns = columns_of(head.decode())
        if fact.subject.startswith(f"{_FORGOTTEN}."):
            connection.execute(FORGET, (columns["kind"], int(columns["before"]), ALL))
        else:
            put(connection, fact.subject, fact.seq, columns, body)
    except (Newer, ValueError, KeyError, TypeError, RecursionError, sqlite3.IntegrityError) as error:
        known = {"subject": fact.subject, "seq": fact.seq, "why": str(error)}
        log.error("a fact of the gateways cannot be read: it is left out", extra=known)  # noqa: TRY400
