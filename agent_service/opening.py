"""Opens the store for the agent that works with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_service.settings import AgentSettings
from agent_service.store.copying import log_of_runs
from agent_service.store.moving.marks import refuse_moved_away, refuse_unless_here
from agent_service.store.sharing import open_shared
from agent_service.store.sqlite import SqliteStore
from groundwork.service.foundations import Ground, SharedGround
from groundwork.sqlite.group_commit import OnCommit


@asynccontextmanager
async def open_store(settings: AgentSettings, ground: Ground, on_commit: OnCommit) -> AsyncIterator[SqliteStore]:
    """The store of the settings, made if absent. Raises Misconfigured, and TryAgain."""
    if isinstance(ground, SharedGround):
        log, held = log_of_runs(ground.link), ground.lease.held
        await refuse_unless_here(log)
        async with open_shared(ground.folder, log, ground.members, held=held, on_commit=on_commit) as shared:
            yield shared
    else:
        refuse_moved_away(settings.store)
        async with SqliteStore.open(settings.store, ground.lease.held, on_commit, reserve=True) as store:
            yield store
