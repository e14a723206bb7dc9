"""The rows of one gateway's database, as facts that several gateways would have written of them.

Open calls belong to that gateway's store id, which is no member, so the others adopt them. A plugin's call that was not
seen to end is in doubt for them. Writing the rows twice changes nothing.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import groupby

from ductile_gateway.store.calls import OPEN
from ductile_gateway.store.outbox import WAITING, Owed
from ductile_gateway.store.pins import Pin, Pinned
from ductile_gateway.store.rows import columns_of, head_of, kind_of, subject_of
from ductile_gateway.store.stream import fact_of
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile
from schemas import subjects

Told = tuple[str, bytes]
"""A subject and its fact."""

AT_ONCE = 500
TOGETHER = 64
_ROWS = "SELECT position, subject, head, body FROM rows WHERE position > ? ORDER BY position LIMIT ?"
_BEGUN_HERE = """
SELECT json_extract(head, '$.key') FROM rows
WHERE kind = 'call' AND state = 'open' AND by <> ''
    AND json_extract(head, '$.begun') IS NULL AND json_extract(head, '$.may_repeat') = 0
ORDER BY position LIMIT 3
"""
_KEPT_ALONE = (
    "DELETE FROM rows WHERE kind IN ('pinned', 'mark')",
    "UPDATE rows SET by = NULL, head = json_remove(head, '$.by', '$.position')",
    "DELETE FROM replica",
)


async def rows_of(file: SqliteFile, known: Sequence[Pin], *, store: str) -> AsyncIterator[Told]:
    """`store`: the source's id. `known`: the keys that its gateway pinned."""
    position = 0
    while rows := await file.read(_ROWS, (position, AT_ONCE)):
        for position, subject, head, body in rows:  # noqa: B007 - the last one is where the next stretch begins
            columns = columns_of(head)
            columns.pop("position", None)
            if columns.get("state") in (OPEN, WAITING):
                columns["by"] = store
            yield subject, head_of(columns).encode() + b"\n" + body
    if known:
        yield subject_of(Pinned), fact_of(Pinned.of(known))


async def begun_here(file: SqliteFile) -> Sequence[str]:
    """Calls of plugins that write and were not seen to end: only where they were begun can they be looked for."""
    return [key for (key,) in await file.read(_BEGUN_HERE)]


async def counted(file: SqliteFile) -> Mapping[str, int]:
    return dict(await file.read("SELECT kind, count(*) FROM rows WHERE kind NOT IN ('pinned', 'mark') GROUP BY kind"))


def kept_alone(connection: sqlite3.Connection) -> None:
    for change in _KEPT_ALONE:
        connection.execute(change)


async def refuse_a_stream_with_rows(log: SharedLog) -> None:
    if await log.end():
        raise Misconfigured(
            f"the stream {subjects.STREAM_LEDGER} is not empty: a ledger can be moved only into an empty one. Make it "
            f"anew: `nats stream rm {subjects.STREAM_LEDGER}`, then `agentic setup --shared`"
        )


async def bring(log: SharedLog, told: Sequence[Told]) -> int:
    """How many are there now. Raises Misconfigured where one is not as it was, and TryAgain."""
    for some in _bunches(told):
        await asyncio.gather(*(_put(log, subject, fact) for subject, fact in some))
    for some in _bunches(told):
        there = await asyncio.gather(*(log.newest(subject) for subject, _ in some))
        for (subject, fact), newest in zip(some, there, strict=True):
            if newest is None or newest.body != fact:
                raise Misconfigured(f"{subject} is in the stream, but not as it was: somebody else writes there")
    return len(told)


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
