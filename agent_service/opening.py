"""The store, opened for the agent that works with it: sealed, and held against what is known of it elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_service.anchoring import Anchoring, Witnesses
from agent_service.anchors import head_told
from agent_service.bus.anchors import NatsAnchors
from agent_service.errors import Changed
from agent_service.identity import SystemClock
from agent_service.settings import AgentSettings
from agent_service.store.anchor_file import AnchorFile
from agent_service.store.moving.marks import refuse_moved_away
from agent_service.store.seals import UNSEALED, Seals
from agent_service.store.sqlite import SqliteStore
from groundwork.service.foundations import Ground
from groundwork.service.key_ring import KeyRing
from groundwork.service.store_id import store_id
from groundwork.sqlite.group_commit import OnCommit


@asynccontextmanager
async def open_store(
    settings: AgentSettings, ground: Ground, ring: KeyRing, on_commit: OnCommit
) -> AsyncIterator[SqliteStore]:
    """The store of the settings, made if absent. Raises Misconfigured, also for one that its agent did not leave so,
    and TryAgain."""
    refuse_moved_away(settings.store)
    seals, keys = Seals(ring), settings.keys_path()
    witnesses = Witnesses(
        store=store_id(settings.store), ring=ring, beside=AnchorFile(keys), bus=NatsAnchors(ground.link)
    )
    async with SqliteStore.open(settings.store, ground.lease.held, on_commit, seals) as store:
        anchoring = Anchoring(store.standing(seals), witnesses, SystemClock())
        for run_id in await anchoring.check():
            store.quarantine(Changed(run_id, UNSEALED))
        async with anchoring.kept():
            yield store


def told_head(store: SqliteStore, ring: KeyRing, run_id: str) -> str:
    """How far the run has come, as it is said with its end. Raises TryAgain."""
    return head_told(ring, run_id, *store.head(run_id))
