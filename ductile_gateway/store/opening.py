"""Opens what several gateways share: the stream, and the own copy of it.

A copy that was not kept for a day is made anew, because deletions are no longer told. Its file name differs from the
database of a gateway that is alone.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from ductile_gateway.clock import SystemClock
from ductile_gateway.store import MIGRATIONS, marks
from ductile_gateway.store.outbox import Members, Owed
from ductile_gateway.store.pins import RowPins, copied_pins
from ductile_gateway.store.rows import kind_of
from ductile_gateway.store.stores import Stores
from ductile_gateway.store.stream import CopiedRows, StreamRows, copy
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import Fact, SharedLog
from groundwork.service.machine import epoch_seconds
from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.group_commit import OnCommit, nobody
from groundwork.sqlite.replica import Replica
from schemas import subjects

FILE = "ledger-copy.db"
KEPT_S = 86400.0
"""Less than the shortest time after which anything is forgotten."""
_OWED = f"{subjects.LEDGER}.{kind_of(Owed)}."


@asynccontextmanager
async def open_shared(
    folder: Path, link: NatsLink, members: Members, *, run_bytes: int, on_commit: OnCommit = nobody
) -> AsyncIterator[Stores]:
    """The stores, once the copy has all of the stream. The folder has one process. Raises Misconfigured where there is
    no stream; also later, in an ExceptionGroup."""
    log = log_of_gateways(link)
    async with kept_copy(log, folder, on_commit) as (file, replica), asyncio.TaskGroup() as group:
        rows = CopiedRows(log, file, replica.wait)
        pins = RowPins(partial(copied_pins, file), rows, SystemClock())
        stores = Stores.of(rows, pins, members=members, run_bytes=run_bytes)

        def applied(facts: Sequence[Fact]) -> None:
            if any(fact.subject.startswith(_OWED) for fact in facts):
                stores.on_owed()

        replica.applied = applied
        writing = group.create_task(rows.write_soon())
        yield stores
        writing.cancel()


def log_of_gateways(link: NatsLink) -> SharedLog:
    return SharedLog(link, subjects.STREAM_LEDGER, root=subjects.LEDGER)


@asynccontextmanager
async def kept_copy(
    log: SharedLog, folder: Path, on_commit: OnCommit = nobody
) -> AsyncIterator[tuple[SqliteFile, Replica]]:
    """A copy that goes on from what this folder has of the last time. Raises as `open_shared`."""
    _leave_what_is_old(folder / FILE)
    async with copy_of(log, folder, on_commit) as (file, replica):
        await marks.refuse_unless_here(StreamRows(log))
        yield file, replica


@asynccontextmanager
async def copy_of(
    log: SharedLog, folder: Path, on_commit: OnCommit = nobody
) -> AsyncIterator[tuple[SqliteFile, Replica]]:
    """A copy in that folder, which follows the log; all is there when this is entered. Raises as `open_shared`."""
    opening = open_file(folder / FILE, MIGRATIONS, on_commit, durable=False)
    async with opening as file, asyncio.TaskGroup() as group:
        replica = Replica(log, file, copy, forget=_forget_all)
        copying = group.create_task(replica.run())
        await replica.caught_up()
        yield file, replica
        copying.cancel()


def _forget_all(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM rows")


def _leave_what_is_old(path: Path) -> None:
    there = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    kept = [one.stat().st_mtime for one in there if one.exists()]
    if kept and epoch_seconds() - max(kept) > KEPT_S:
        for one in there:
            one.unlink(missing_ok=True)
