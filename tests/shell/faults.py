"""Faults of the small world: a process may die at every point that it passes; a store may refuse for a while."""

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from agent_service.errors import Damaged
from agent_service.journal import Commit, Run
from agent_service.ports import Untold, Wake
from agent_service.store.sqlite import SqliteStore
from agent_service.tombstones import ArtifactsGone, Tombstone
from groundwork.service.errors import TryAgain
from tests.kit.crashes import Points
from tests.kit.fakes import MemoryStore

T = TypeVar("T")


class FaultyStore:
    """A store whose process may die before a commit, or right after it. Others have their turn while it works.

    As in a real one, what was told is written with the next commit only, and forgotten by a crash until then.
    """

    def __init__(self, store: MemoryStore | SqliteStore, faults: Points) -> None:
        self.refusals = 0
        """How many commits of replies are refused for now, as by a full disk."""
        self.breaks_over = ""
        """A kind of event over which the program breaks."""
        self._store = store
        self._faults = faults
        self._told: list[tuple[str, int, int]] = []

    async def accept(self, wake: Wake, commit: Commit) -> str:
        return await self._around("accept", self._store.accept(wake, commit))

    async def load(self, run_id: str) -> Run | None:
        await asyncio.sleep(0)
        return await self._store.load(run_id)

    async def tombstone(self, run_id: str) -> Tombstone | None:
        return await self._store.tombstone(run_id)

    async def artifacts_gone(self, run_id: str) -> ArtifactsGone | None:
        return await self._store.artifacts_gone(run_id)

    async def commit(self, commit: Commit) -> None:
        if self.refusals and commit.entry.kind == "ModelReplied":
            self.refusals -= 1
            raise TryAgain("the disk is full", delay_s=0)
        if commit.entry.kind == self.breaks_over:
            raise ZeroDivisionError(commit.entry.kind)
        await self._around(f"commit of {commit.entry.kind}", self._store.commit(commit))

    def quarantine(self, found: Damaged) -> None:
        self._store.quarantine(found)

    def told(self, run_id: str, seq: int, *, since: int = 1) -> None:
        self._faults.point("before told")
        self._told.append((run_id, seq, since))

    def write_told(self) -> None:
        for run_id, seq, since in self._told:
            self._store.told(run_id, seq, since=since)
        self._told.clear()

    def forget_told(self) -> None:
        """As when this process dies before it is written."""
        self._told.clear()

    async def untold(self, limit: int) -> Sequence[Untold]:
        return await self._store.untold(limit)

    async def ours(self, run_ids: Sequence[str]) -> Sequence[str]:
        return await self._store.ours(run_ids)

    async def sees_to(self, run_id: str, seq: int) -> bool:
        return await self._store.sees_to(run_id, seq)

    async def is_current(self, run_id: str, version: int) -> bool:
        return await self._store.is_current(run_id, version)

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        return await self._store.superseded(run_id, call, since)

    async def queued(self, limit: int) -> Sequence[str]:
        return await self._store.queued(limit)

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        return await self._store.due(now, limit)

    async def _around(self, name: str, work: Awaitable[T]) -> T:
        with suppress_unawaited(work):
            self._faults.point(f"before {name}")
            await asyncio.sleep(0)
        done = await work
        self.write_told()
        self._faults.point(f"after {name}")
        return done


class suppress_unawaited:  # noqa: N801 # reads as the statement that it is
    """Closes a coroutine that a crash kept from running."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and asyncio.iscoroutine(self._work):
            self._work.close()
