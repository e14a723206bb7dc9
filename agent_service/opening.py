"""The store, opened for the agent that works with it: sealed, and held against what is known of it elsewhere."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from agent_service.anchoring import Anchoring, Witnesses
from agent_service.anchors import head_told
from agent_service.bus.anchors import NatsAnchors
from agent_service.errors import Changed
from agent_service.identity import SystemClock
from agent_service.settings import AgentSettings
from agent_service.store.anchor_file import AnchorFile
from agent_service.store.copying import log_of_runs
from agent_service.store.moving.marks import refuse_moved_away, refuse_unless_here
from agent_service.store.seals import STRANGE_KEY, UNSEALED, Seals
from agent_service.store.shared import SharedStore
from agent_service.store.sharing import open_shared
from agent_service.store.sqlite import SqliteStore
from groundwork.service.errors import Misconfigured
from groundwork.service.foundations import Ground, SharedGround
from groundwork.service.key_ring import KeyRing
from groundwork.service.store_id import store_id
from groundwork.sqlite.group_commit import OnCommit


def open_store(
    settings: AgentSettings, ground: Ground, ring: KeyRing, on_commit: OnCommit
) -> AbstractAsyncContextManager[SqliteStore]:
    """The store of the settings, made if absent. Raises Misconfigured, also for one that its agent did not leave so,
    and TryAgain."""
    if isinstance(ground, SharedGround):
        return _on_the_bus(settings, ground, ring, on_commit)
    return _in_a_folder(settings, ground, ring, on_commit)


@asynccontextmanager
async def _in_a_folder(
    settings: AgentSettings, ground: Ground, ring: KeyRing, on_commit: OnCommit
) -> AsyncIterator[SqliteStore]:
    refuse_moved_away(settings.store)
    seals, keys = Seals(ring), settings.keys_path()
    witnesses = Witnesses(
        store=store_id(settings.store), ring=ring, beside=AnchorFile(keys), bus=NatsAnchors(ground.link)
    )
    async with SqliteStore.open(settings.store, ground.lease.held, on_commit, seals, reserve=True) as store:
        anchoring = Anchoring(store.standing(seals), witnesses, SystemClock())
        for run_id in await anchoring.check():
            store.quarantine(Changed(run_id, UNSEALED))
        async with anchoring.kept():
            yield store


@asynccontextmanager
async def _on_the_bus(
    settings: AgentSettings, ground: SharedGround, ring: KeyRing, on_commit: OnCommit
) -> AsyncIterator[SharedStore]:
    facts, seals = log_of_runs(ground.link), Seals(ring)
    await refuse_unless_here(facts)
    opened = open_shared(ground.folder, facts, ground.members, held=ground.lease.held, on_commit=on_commit, seals=seals)
    async with opened as store:
        if strange := await store.standing(seals).strange_key():
            why = f"the newest run on the bus: {STRANGE_KEY.format(key=strange)}"
            raise Misconfigured(f"{why}. Give all agents of this store the same {settings.keys_path()}")
        yield store


def told_head(store: SqliteStore, ring: KeyRing, run_id: str) -> str:
    """How far the run has come, as it is said with its end. Raises TryAgain."""
    return head_told(ring, run_id, *store.head(run_id))
