"""Opens the store of the settings: SQLite, or a shared log with an index of this process's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_service.settings import AgentSettings
from agent_service.store.shared_log.marks import refuse_moved_away
from agent_service.store.sqlite import SqliteStore
from groundwork.service.beginning import loaded
from groundwork.service.foundations import Ground
from groundwork.sqlite.group_commit import OnCommit


@asynccontextmanager
async def open_store(settings: AgentSettings, ground: Ground, on_commit: OnCommit) -> AsyncIterator[SqliteStore]:
    """The store of the settings, made if absent. Raises Misconfigured, and TryAgain."""
    if settings.shared:
        async with loaded("agent_service.store.shared_log.opening:open_store")(ground, on_commit) as shared:
            yield shared
    else:
        refuse_moved_away(settings.store)
        async with SqliteStore.open(settings.store, ground.lease.held, on_commit, reserve=True) as store:
            yield store
