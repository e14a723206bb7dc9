"""A shared store, opened by one of those who share it: its copy of the log is brought up to date, and kept so."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from agent_service.store.applying import Applying
from agent_service.store.shared import SharedStore
from agent_service.store.sql.database import FILE, open_database
from agent_service.store.sqlite import Held
from agent_service.store.standing_on import Members
from groundwork.nats.shared_log import SharedLog
from groundwork.service.errors import Failure, Misconfigured
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.group_commit import OnCommit, nobody
from groundwork.sqlite.replica import Replica

LAST_WORDS_S = 2.0
"""How long is waited at the end until the others are told what is done."""

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_shared(
    folder: Path,
    facts: SharedLog,
    members: Members,
    *,
    held: Held,
    on_commit: OnCommit = nobody,
) -> AsyncIterator[SharedStore]:
    """The store whose log is `facts`, with this process's copy of it in `folder`, once that has all there is.

    Raises Misconfigured, also in a group and while it is open, where the log is gone or another one than before.
    """
    applying = Applying()
    async with _copy_in(folder, on_commit) as database, asyncio.TaskGroup() as group:
        await database.write(applying.outgrow)
        replica = Replica(facts, database, applying.apply, forget=applying.forget)
        store = SharedStore(database, (facts, replica, members), applying, held=held)
        replica.applied = store.applied
        following = group.create_task(replica.run())
        await replica.caught_up()
        await store.begin()
        telling = group.create_task(store.keep_telling())
        yield store
        telling.cancel()
        with contextlib.suppress(Failure, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await store.tell()
        following.cancel()


@contextlib.asynccontextmanager
async def _copy_in(folder: Path, on_commit: OnCommit) -> AsyncIterator[SqliteFile]:
    """The copy's file. One that is damaged, as by a crash of the machine, is made again."""
    async with contextlib.AsyncExitStack() as opened:
        try:
            database = await opened.enter_async_context(open_database(folder, on_commit, durable=False))
        except Misconfigured as error:
            log.warning("the copy of the log is made again", extra={"why": str(error)})
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (folder / name).unlink(missing_ok=True)
            database = await opened.enter_async_context(open_database(folder, on_commit, durable=False))
        yield database
