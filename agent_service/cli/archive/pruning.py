"""`agentic prune` without an agent: on the store itself, whose lock is held meanwhile."""

from contextlib import AsyncExitStack
from pathlib import Path

from agent_service import settings
from agent_service.api.operating import PruneView, prune_view
from agent_service.archive.pruning import Pruning, RunBelongings
from agent_service.archive.retention import Beside
from agent_service.bus.retention import ON_ITS_MACHINE, NatsBesideRuns
from agent_service.cli import whereabouts
from agent_service.cli.archive.records import LateArtifacts
from agent_service.cli.services.alone import bus_at_hand
from agent_service.settings import AgentSettings
from agent_service.store.sql.database import FILE, open_for_reading
from agent_service.store.sqlite import SqliteStore
from agent_service.trust.identity import SystemClock
from groundwork.service.errors import Failure, Misconfigured
from groundwork.service.store_folder import AlreadyRunning, ProcessLock


async def prune(config: Path | None, *, dry_run: bool) -> PruneView:
    """Raises Misconfigured for a store that is not there or in use; TryAgain on a full disk."""
    loaded = settings.load(whereabouts.nearby(config))
    if loaded.shared:
        raise Misconfigured("the runs are on the bus, and their agents see to them: start one, and ask it with --url")
    if not (loaded.store / FILE).is_file():
        raise Misconfigured(f"there is no database {loaded.store / FILE}: name the configuration of its agent")
    async with AsyncExitStack() as opened:
        pruning = await _opened(loaded, opened, dry_run=dry_run)
        pruned = await (pruning.preview() if dry_run else pruning.prune(rest=0))
    return prune_view(pruned, await _beside(loaded, dry_run=dry_run), rules=pruning.has_rules, dry_run=dry_run)


async def _beside(loaded: AgentSettings, *, dry_run: bool) -> Beside:
    try:
        async with bus_at_hand(loaded) as link:
            return await NatsBesideRuns(link, loaded.keep_runs, SystemClock()).prune(dry_run=dry_run)
    except Failure as error:
        return Beside(trouble=f"dead letters and the gateway's ledger: the bus is away ({error}); {ON_ITS_MACHINE}")


async def _opened(loaded: AgentSettings, opened: AsyncExitStack, *, dry_run: bool) -> Pruning:
    if dry_run:
        store = SqliteStore(await opened.enter_async_context(open_for_reading(loaded.store)))
    else:
        try:
            opened.enter_context(ProcessLock(loaded.store))
        except AlreadyRunning as error:
            raise Misconfigured(f"its agent runs: ask it with --url. Nothing was done: {error}") from error
        store = await opened.enter_async_context(SqliteStore.open(loaded.store, reserve=True))
    belongings = RunBelongings(loaded.workspaces, LateArtifacts(loaded, opened))
    return Pruning(store.forgetting, belongings, loaded.keep_runs, loaded.limits.reopen_days, SystemClock())
