"""Opens a shared store: its log on the bus, and an index of this process."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from agent_service.store.database import FILE, MIGRATIONS
from agent_service.store.moving import require_runs_here
from agent_service.store.rows import apply_message, clear_index
from agent_service.store.runs import LeaseCheck, no_lease
from agent_service.store.shared import SharedStore
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import SharedLog
from groundwork.service.startup import ServiceContext
from groundwork.sqlite.replica import Replica, open_copy
from schemas import subjects


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
    async with open_copy(folder / FILE, MIGRATIONS) as database:
        replica = Replica(facts, database, apply_message, forget=clear_index)
        store = SharedStore(database, facts, replica, held=held)
        replica.applied = store.applied
        async with replica.following():
            await store.begin()
            yield store
