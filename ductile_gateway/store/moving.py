"""The rows of a ledger on their way out of a database into the stream of several gateways, and back; and the mark that
keeps two stores from going on with them.

    coming ─▶ here ─▶ left

A stream without a mark has its rows here. Each step is said before the next, so that the same command finishes a
restore. Open calls belong to the backup, which is no member, so the gateways adopt them: a plugin's call that was not
seen to end is in doubt. Writing the rows twice changes nothing.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ductile_gateway.store.calls import OPEN
from ductile_gateway.store.outbox import WAITING, Owed
from ductile_gateway.store.pins import Pin, Pinned
from ductile_gateway.store.rows import columns_of, head_of, kind_of, subject_of
from ductile_gateway.store.stream import StreamRows, fact_of
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile
from schemas import subjects

Told = tuple[str, bytes]
"""A subject and its fact."""

AT_ONCE = 500
TOGETHER = 64
ANEW = f"make the stream anew: `nats stream rm {subjects.STREAM_LEDGER}`, then `agentic setup --shared`"
_ROWS = "SELECT position, subject, head, body FROM rows WHERE position > ? ORDER BY position LIMIT ?"
_KEPT_ALONE = (
    "DELETE FROM rows WHERE kind IN ('pinned', 'mark')",
    "UPDATE rows SET by = NULL, head = json_remove(head, '$.by', '$.position')",
    "DELETE FROM replica",
)


class Mark(NamedTuple):
    """`state`: coming, here or left. `backup`: the one that the rows come from."""

    state: str = "here"
    backup: str = ""
    body: bytes = b""


async def mark_of(rows: StreamRows) -> Mark:
    return await rows.read(Mark) or Mark()


async def put_mark(rows: StreamRows, mark: Mark, *, before: Mark) -> None:
    """In place of the mark before. Raises Misconfigured where another has moved it meanwhile."""

    def instead(there: Mark | None) -> Mark:
        found = there or Mark()
        if found not in (mark, before):
            raise Misconfigured(f"another command moves the ledger: it is {found.state} now. Try again once it ended")
        return mark

    await rows.change(Mark, instead)


async def refuse_unless_here(rows: StreamRows) -> None:
    mark = await mark_of(rows)
    if mark.state == "left":
        raise Misconfigured(
            f"the ledger of {subjects.STREAM_LEDGER} was backed up to be moved: set gateway.store to where it was "
            f"restored; or {ANEW}"
        )
    if mark.state == "coming":
        raise Misconfigured(
            f"the ledger of {subjects.STREAM_LEDGER} is being restored, and that was not finished: run "
            f"`ductile-gateway restore FILE --backup {mark.backup}` again; or {ANEW}"
        )


async def rows_of(file: SqliteFile, known: Sequence[Pin], *, owner: str) -> AsyncIterator[Told]:
    """`owner`: of what is under way. `known`: the keys that the gateway pinned."""
    position = 0
    while rows := await file.read(_ROWS, (position, AT_ONCE)):
        for position, subject, head, body in rows:  # noqa: B007 - the last one is where the next stretch begins
            columns = columns_of(head)
            columns.pop("position", None)
            if columns.get("state") in (OPEN, WAITING):
                columns["by"] = owner
            yield subject, head_of(columns).encode() + b"\n" + body
    if known:
        yield subject_of(Pinned), fact_of(Pinned.of(known))


def kept_alone(connection: sqlite3.Connection) -> None:
    for change in _KEPT_ALONE:
        connection.execute(change)


async def bring(log: SharedLog, told: Sequence[Told]) -> None:
    """Raises Misconfigured where one is not as it was, and TryAgain."""
    for some in _bunches(told):
        await asyncio.gather(*(_put(log, subject, fact) for subject, fact in some))
    for some in _bunches(told):
        there = await asyncio.gather(*(log.newest(subject) for subject, _ in some))
        for (subject, fact), newest in zip(some, there, strict=True):
            if newest is None or newest.body != fact:
                raise Misconfigured(f"{subject} is in the stream, but not as it was: somebody else writes there")


async def _put(log: SharedLog, subject: str, fact: bytes) -> None:
    if await log.newest(subject) is None:
        with contextlib.suppress(Moved):
            await log.append(subject, fact, after=0)


def _bunches(told: Sequence[Told]) -> Iterator[Sequence[Told]]:
    """Notifications one at a time, because they have an order."""
    for is_owed, some in groupby(told, key=lambda one: one[0].startswith(f"{subjects.LEDGER}.{kind_of(Owed)}.")):
        alike = list(some)
        size = 1 if is_owed else TOGETHER
        yield from (alike[at : at + size] for at in range(0, len(alike), size))
