"""Opens what several gateways have in common: the stream, and the own copy of it.

A copy that was not kept for a day is made anew, because deletions are no longer told. Its file name differs from the
database of a gateway that is alone.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

from ductile_gateway import store
from ductile_gateway.clock import SystemClock
from ductile_gateway.store.shared import marks
from ductile_gateway.store.shared.call_rows import CallRows
from ductile_gateway.store.shared.copy import TABLES, apply
from ductile_gateway.store.shared.ledger import SharedLedger, SharedOverdue, SharedReceipts
from ductile_gateway.store.shared.outbox import SharedDeliveries, SharedOutbox
from ductile_gateway.store.shared.pins import SharedPins, copied
from ductile_gateway.store.shared.rows import NOTIFICATION, Members, Rows
from ductile_gateway.store.stores import Stores
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import Fact, SharedLog
from groundwork.service.machine import epoch_seconds
from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.group_commit import OnCommit, nobody
from groundwork.sqlite.replica import Replica
from schemas import subjects


def shared_stores(file: SqliteFile, rows: Rows, call_rows: CallRows, *, members: Members, run_bytes: int) -> Stores:
    """Over the rows of all, with the own copy of them in `file`."""
    return Stores(
        ledger=SharedLedger(file, rows, call_rows, by=members.me, run_bytes=run_bytes),
        receipts=SharedReceipts(call_rows, by=members.me),
        overdue=SharedOverdue(file, call_rows),
        deliveries=SharedDeliveries(file, rows),
        outbox=SharedOutbox(file, rows, members=members),
        pins=SharedPins(partial(copied, file), rows, clock=SystemClock()),
    )


FILE = "ledger-copy.db"
KEPT_S = 86400.0
"""Less than the shortest time after which anything is forgotten."""


@asynccontextmanager
async def open_shared(
    folder: Path, link: NatsLink, members: Members, *, run_bytes: int, on_commit: OnCommit = nobody
) -> AsyncIterator[tuple[SqliteFile, Stores]]:
    """The stores and the file with the copy, once that has all of the stream. The folder has one process. Raises
    Misconfigured where there is no stream; also later, in an ExceptionGroup."""
    log = log_of_gateways(link)
    async with kept_copy(log, folder, on_commit) as (file, replica), asyncio.TaskGroup() as group:
        rows = Rows(log, replica.wait)
        call_rows = CallRows(rows)
        stores = shared_stores(file, rows, call_rows, members=members, run_bytes=run_bytes)
        replica.applied = Telling(stores)
        writing = group.create_task(call_rows.write_soon())
        yield file, stores
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
        await marks.refuse_unless_here(Rows(log, replica.wait))
        yield file, replica


@asynccontextmanager
async def copy_of(
    log: SharedLog, folder: Path, on_commit: OnCommit = nobody
) -> AsyncIterator[tuple[SqliteFile, Replica]]:
    """A copy in that folder, which follows the log; all is there when this is entered. Raises as `open_shared`."""
    schema = files(store) / "sql"
    async with open_file(folder / FILE, schema, on_commit, durable=False) as file, asyncio.TaskGroup() as group:
        replica = Replica(log, file, apply, forget=forget_all)
        copying = group.create_task(replica.run())
        await replica.caught_up()
        yield file, replica
        copying.cancel()


class Telling:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def __call__(self, facts: Sequence[Fact]) -> None:
        if any(fact.subject.startswith(f"{subjects.LEDGER}.{NOTIFICATION}.") for fact in facts):
            self._stores.on_owed()


def forget_all(connection: sqlite3.Connection) -> None:
    for table in TABLES:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours


def _leave_what_is_old(path: Path) -> None:
    there = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    kept = [one.stat().st_mtime for one in there if one.exists()]
    if kept and epoch_seconds() - max(kept) > KEPT_S:
        for one in there:
            one.unlink(missing_ok=True)
