"""A copy of a shared store for whoever is no agent: to look at runs, verify them, or make another store of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agent_service.store.applying import Applying
from agent_service.store.sql.database import open_database
from agent_service.store.sql.queries import load_queries
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import Fact, SharedLog
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.replica import Replica
from schemas import subjects


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
    """In a folder that no other process uses, where it goes on from what is there; all is there when this is entered.

    Raises Misconfigured for a stream or folder that cannot be used, and TryAgain.
    """
    applying, log = Applying(), log_of_runs(link)

    def applied(facts: Sequence[Fact]) -> None:
        for fact in facts:
            applying.outcome(fact)

    async with open_database(folder) as database, asyncio.TaskGroup() as group:
        replica = Replica(log, database, applying.apply, forget=applying.forget, applied=applied)
        copying = group.create_task(replica.run())
        await replica.caught_up()
        yield Copied(log, database, replica)
        copying.cancel()
