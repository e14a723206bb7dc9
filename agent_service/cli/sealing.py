"""`agentic seal`: a person takes the store as it is, after a backup was restored, a row repaired, or the keys lost."""

from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_service import settings
from agent_service.anchoring import Witnesses, contradictions
from agent_service.anchors import Anchor
from agent_service.bus.anchors import NatsAnchors
from agent_service.cli import configuration
from agent_service.cli.records import bus_at_hand
from agent_service.settings import AgentSettings
from agent_service.store.anchor_file import AnchorFile
from agent_service.store.seals import Seals
from agent_service.store.sql.database import FILE
from agent_service.store.sqlite import SqliteStore
from agent_service.store.standing import SqliteStanding
from groundwork.service.errors import Misconfigured
from groundwork.service.key_ring import KeyRing
from groundwork.service.process_lock import AlreadyRunning, ProcessLock
from groundwork.service.store_id import store_id
from schemas import subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What is taken as it is (`done`), or would be: runs by id with what was found, and what anchors contradict."""

    config: str
    done: bool
    runs: dict[str, str]
    store: tuple[str, ...]

    def for_programs(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"! {what}" for what in self.store] + [f"! {run_id}: {what}" for run_id, what in self.runs.items()]
        if self.done:
            return "\n".join((*lines, f"✓ sealed as it is: {len(self.runs)} runs anew; the agent starts from here"))
        if not lines:
            return "✓ the store is as its agent left it: there is nothing to take"
        return "\n".join(
            (*lines, "This is taken as it is with `agentic seal --yes`: look first with `agentic verify --all`")
        )


async def seal(config: Path | None, *, yes: bool) -> Taken:
    """Raises Misconfigured for a store that is not there or in use, and Failure where the bus does not answer."""
    path = configuration.nearby(config)
    loaded = settings.load(path)
    if loaded.shared:
        raise Misconfigured(
            f"the store is the stream {subjects.STREAM_RUNS}, which its agents seal, fact by fact: a run that does not "
            "fit is left alone. Restore the stream from a backup, or give the agents the keys file it was sealed with"
        )
    if not (loaded.store / FILE).is_file():
        raise Misconfigured(f"there is no database {loaded.store / FILE}: name the configuration of its agent")
    async with AsyncExitStack() as opened:
        try:
            opened.enter_context(ProcessLock(loaded.store))
        except AlreadyRunning as error:
            raise Misconfigured(f"{error}. Nothing was sealed") from error
        link = await opened.enter_async_context(bus_at_hand(loaded))
        ring = KeyRing.open(loaded.keys_path())
        store = await opened.enter_async_context(SqliteStore.open(loaded.store, seals=Seals(ring)))
        standing, witnesses = store.standing(Seals(ring)), _witnesses(loaded, ring, NatsAnchors(link))
        strange = await standing.unfitting()
        found = contradictions(standing, await standing.counted(), await witnesses.anchors())
        if yes:
            await _take(standing, witnesses, tuple(strange))
    return Taken(config=configuration.told(path), done=yes, runs=strange, store=tuple(found))


def _witnesses(loaded: AgentSettings, ring: KeyRing, bus: NatsAnchors) -> Witnesses:
    return Witnesses(store=store_id(loaded.store), ring=ring, beside=AnchorFile(loaded.keys_path()), bus=bus)


async def _take(standing: SqliteStanding, witnesses: Witnesses, run_ids: tuple[str, ...]) -> None:
    await standing.seal(run_ids)
    anchor = Anchor.made(witnesses.store, await standing.counted(), datetime.now(UTC), witnesses.ring)
    witnesses.beside.keep(anchor)
    if witnesses.bus:
        await witnesses.bus.put(anchor)
