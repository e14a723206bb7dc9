"""Opens a shared store: its log on the bus, and an index of this process."""

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from agent_service.store.database import FILE, open_database
from agent_service.store.moving import require_runs_here
from agent_service.store.rows import apply_message, clear_index
from agent_service.store.runs import LeaseCheck, no_lease
from agent_service.store.shared import SharedStore
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.service.startup import ServiceContext
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.replica import Replica
from schemas import subjects

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_store(ground: ServiceContext) -> AsyncIterator[SharedStore]:
    """Raises Misconfigured, and TryAgain."""
    runs = log_of_runs(ground.link)
    await require_runs_here(runs)
    async with open_shared(ground.folder, runs, held=ground.lease.ensure_held) as shared:
        yield shared


def log_of_runs(link: NatsLink) -> SharedLog:
    return SharedLog(link, subjects.STREAM_RUNS, root=subjects.STORE, headers_only=True)


@contextlib.asynccontextmanager
async def open_shared(folder: Path, facts: SharedLog, *, held: LeaseCheck = no_lease) -> AsyncIterator[SharedStore]:
    """The store of the log `facts`, its index in `folder` up to date. Raises Misconfigured, also later, in a group."""
    async with _index_in(folder) as database:
        replica = Replica(facts, database, apply_message, forget=clear_index)
        store = SharedStore(database, facts, replica, held=held)
        replica.applied = store.applied
        async with replica.following():
            await store.begin()
            yield store


@contextlib.asynccontextmanager
async def _index_in(folder: Path) -> AsyncIterator[SqliteFile]:
    async with contextlib.AsyncExitStack() as opened:
        try:
            database = await opened.enter_async_context(open_database(folder, durable=False))
        except Misconfigured as error:
            log.warning("the index of runs is made again", extra={"why": str(error)})
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (folder / name).unlink(missing_ok=True)
            database = await opened.enter_async_context(open_database(folder, durable=False))
        yield database
