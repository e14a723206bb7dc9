"""All that the gateway remembers, opened: its own database, or the stream that several gateways share and the own copy
of it.

A copy that was not kept for a day is made anew, because deletions are no longer told. Its file name differs from the
database of a gateway that is alone.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ductile_gateway.calls.call import ALONE
from ductile_gateway.store import FILE, MIGRATIONS
from ductile_gateway.store.calls import CallLedger, CallReceipts, OverdueJobs
from ductile_gateway.store.carriers import InFile, InStream, copy
from ductile_gateway.store.moving import mark_of
from ductile_gateway.store.outbox import OwedNotifications
from ductile_gateway.store.pins import RowPins
from ductile_gateway.store.rows import Rows
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import SharedLog
from groundwork.service.machine import epoch_seconds
from groundwork.sqlite.file import open_file
from groundwork.sqlite.group_commit import OnCommit, nobody
from groundwork.sqlite.replica import Replica
from schemas import subjects

COPY = "ledger-copy.db"
KEPT_S = 86400.0
"""Less than the shortest time after which anything is forgotten."""
ANEW = f"make the stream anew: `nats stream rm {subjects.STREAM_LEDGER}`, then `agentic setup --shared`"


@dataclass(slots=True, kw_only=True)
class Stores:
    rows: Rows
    ledger: CallLedger
    receipts: CallReceipts
    overdue: OverdueJobs
    outbox: OwedNotifications
    pins: RowPins

    @classmethod
    def of(cls, rows: Rows, *, run_bytes: int, by: str = ALONE) -> Self:
        """`by`: this gateway among others."""
        return cls(
            rows=rows,
            ledger=CallLedger(rows, by=by, run_bytes=run_bytes),
            receipts=CallReceipts(rows, by=by),
            overdue=OverdueJobs(rows),
            outbox=OwedNotifications(rows, by=by),
            pins=RowPins(rows),
        )


@asynccontextmanager
async def open_alone(folder: Path, *, run_bytes: int, on_commit: OnCommit = nobody) -> AsyncIterator[Stores]:
    """The stores of the file in an existing folder. Raises Misconfigured, also where its content was moved."""
    async with open_file(folder / FILE, MIGRATIONS, on_commit) as file:
        rows = Rows(InFile(file))
        (await mark_of(rows)).check(str(folder), anew="restore it here")
        yield Stores.of(rows, run_bytes=run_bytes)


@asynccontextmanager
async def open_shared(
    folder: Path, link: NatsLink, me: str, *, run_bytes: int, on_commit: OnCommit = nobody
) -> AsyncIterator[Stores]:
    """The stores, once the copy has all of the stream. The folder has one process. Raises Misconfigured where there is
    no stream; also later, in an ExceptionGroup."""
    log = log_of_gateways(link)
    await check_shared(log)
    async with kept_copy(log, folder, on_commit) as rows:
        yield Stores.of(rows, run_bytes=run_bytes, by=me)


def log_of_gateways(link: NatsLink) -> SharedLog:
    return SharedLog(link, subjects.STREAM_LEDGER, root=subjects.LEDGER)


async def check_shared(log: SharedLog) -> None:
    (await mark_of(Rows(InStream(log)))).check(subjects.STREAM_LEDGER, anew=ANEW)


@asynccontextmanager
async def kept_copy(log: SharedLog, folder: Path, on_commit: OnCommit = nobody) -> AsyncIterator[Rows]:
    """Over a copy that goes on from what this folder has of the last time, and has all when this is entered. Raises as
    `open_shared`."""
    _leave_what_is_old(folder / COPY)
    opening = open_file(folder / COPY, MIGRATIONS, on_commit, durable=False)
    async with opening as file, asyncio.TaskGroup() as group:
        replica = Replica(log, file, copy, forget=_forget_all)
        copying = group.create_task(replica.run())
        await replica.caught_up()
        yield Rows(InStream(log, file, replica.wait))
        copying.cancel()


def _forget_all(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM rows")


def _leave_what_is_old(path: Path) -> None:
    there = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    kept = [one.stat().st_mtime for one in there if one.exists()]
    if kept and epoch_seconds() - max(kept) > KEPT_S:
        for one in there:
            one.unlink(missing_ok=True)
