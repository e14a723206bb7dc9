"""Opens the store of the settings: SQLite, or one member's copy of a shared log; and copies for those who only read."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agent_service.settings import AgentSettings
from agent_service.store.shared_log.applying import Applying
from agent_service.store.shared_log.marks import refuse_moved_away, refuse_unless_here
from agent_service.store.shared_log.store import SharedStore
from agent_service.store.sql.database import FILE, load_queries, open_database
from agent_service.store.sqlite import Held, SqliteStore
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.service.foundations import Ground, SharedGround
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.group_commit import OnCommit, nobody
from groundwork.sqlite.replica import Replica
from schemas import subjects
from schemas.values import dataclass


@dataclass(frozen=True, slots=True)
class Copied:
    """`database` follows `log`; `caught_up` waits until all is there that is in the log now."""

    log: SharedLog
    database: SqliteFile
    replica: Replica

    async def caught_up(self) -> None:
        await self.replica.caught_up()


def log_of_runs(link: NatsLink) -> SharedLog:
    return SharedLog(link, subjects.STREAM_RUNS, root=subjects.STORE)


async def left_out(database: SqliteFile) -> dict[str, str]:
    """Facts of the log that a copy could not take in: by run, or by position, and why."""
    rows = await database.read(load_queries()["skipped"])
    return {run_id or f"fact {position}": f"what is at {position}: {why}" for run_id, _, why, position in rows}


@asynccontextmanager
async def copied(link: NatsLink, folder: Path) -> AsyncIterator[Copied]:
    """In a folder of this process's own; all is there when this is entered. Raises Misconfigured and TryAgain."""
    applying, log = Applying(), log_of_runs(link)

    def applied(facts: Sequence[StoredMessage]) -> None:
        for fact in facts:
            applying.outcome(fact)

    async with open_database(folder) as database, asyncio.TaskGroup() as group:
        replica = Replica(log, database, applying.apply, forget=applying.forget, applied=applied)
        copying = group.create_task(replica.run())
        await replica.caught_up()
        yield Copied(log, database, replica)
        copying.cancel()


log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_shared(
    folder: Path,
    facts: SharedLog,
    *,
    held: Held,
    on_commit: OnCommit = nobody,
) -> AsyncIterator[SharedStore]:
    """The store of the log `facts`, its copy in `folder` up to date. Raises Misconfigured, also later, in a group."""
    applying = Applying()
    async with _copy_in(folder, on_commit) as database, asyncio.TaskGroup() as group:
        await database.write(applying.outgrow)
        replica = Replica(facts, database, applying.apply, forget=applying.forget)
        store = SharedStore(database, facts, replica, applying, held=held)
        replica.applied = store.applied
        following = group.create_task(replica.run())
        await replica.caught_up()
        await store.begin()
        yield store
        following.cancel()


@contextlib.asynccontextmanager
async def _copy_in(folder: Path, on_commit: OnCommit) -> AsyncIterator[SqliteFile]:
    async with contextlib.AsyncExitStack() as opened:
        try:
            database = await opened.enter_async_context(open_database(folder, on_commit, durable=False))
        except Misconfigured as error:
            log.warning("the copy of the log is made again", extra={"why": str(error)})
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (folder / name).unlink(missing_ok=True)
            database = await opened.enter_async_context(open_database(folder, on_commit, durable=False))
        yield database


@asynccontextmanager
async def open_store(settings: AgentSettings, ground: Ground, on_commit: OnCommit) -> AsyncIterator[SqliteStore]:
    """The store of the settings, made if absent. Raises Misconfigured, and TryAgain."""
    if isinstance(ground, SharedGround):
        log, held = log_of_runs(ground.link), ground.lease.held
        await refuse_unless_here(log)
        async with open_shared(ground.folder, log, held=held, on_commit=on_commit) as shared:
            yield shared
    else:
        refuse_moved_away(settings.store)
        async with SqliteStore.open(settings.store, ground.lease.held, on_commit, reserve=True) as store:
            yield store
