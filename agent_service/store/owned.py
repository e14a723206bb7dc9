"""The run store of an agent that owns its bus: it takes new work only while that is sure. Fills the port RunStore.

What is decided for a run that is in this store already is written also while the bus is away, for nothing of it leaves
before the lease is held again; nothing at all is written once another agent has the bus.
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from agent_service.errors import Damaged, TryAgain
from agent_service.journal import Commit, Run
from agent_service.ports import RunStore, Untold, Wake
from groundwork.service.errors import Failure


class OwnedStore:
    """`held` raises what the lease raises: TryAgain while nobody can say, Misconfigured once another has it."""

    def __init__(self, store: RunStore, held: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._held = held

    async def accept(self, wake: Wake, commit: Commit) -> str:
        """As the port says; TryAgain also where this agent may not be the one of the bus any more."""
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing new is taken: {error}") from error
        return await self._store.accept(wake, commit)

    async def commit(self, commit: Commit) -> None:
        try:
            with contextlib.suppress(TryAgain):
                await self._held()
        except Failure as error:
            raise TryAgain(str(error)) from error
        await self._store.commit(commit)

    async def load(self, run_id: str) -> Run | None:
        return await self._store.load(run_id)

    def quarantine(self, found: Damaged) -> None:
        self._store.quarantine(found)

    def told(self, run_id: str, seq: int) -> None:
        self._store.told(run_id, seq)

    async def untold(self, limit: int) -> Sequence[Untold]:
        return await self._store.untold(limit)

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        return await self._store.due(now, limit)

    async def queued(self, limit: int) -> Sequence[str]:
        return await self._store.queued(limit)
