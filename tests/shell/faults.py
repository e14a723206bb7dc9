"""Faults of the small world: a process may die at every point that it passes; a store may refuse for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from agent_service.run.journal import Commit, Run
from agent_service.run.ports import Wake
from agent_service.store.sqlite import SqliteStore
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
        return await self._around("accept", partial(self._store.accept, wake, commit))

    async def load(self, run_id: str) -> Run | None:
        await asyncio.sleep(0)
        return await self._store.load(run_id)

    async def commit(self, commit: Commit) -> None:
        if self.refusals and commit.entry.kind == "ModelReplied":
            self.refusals -= 1
            raise TryAgain("the disk is full", delay_s=0)
        if commit.entry.kind == self.breaks_over:
            raise ZeroDivisionError(commit.entry.kind)
        await self._around(f"commit of {commit.entry.kind}", partial(self._store.commit, commit))

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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _around(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        self._faults.point(f"before {name}")
        await asyncio.sleep(0)
        done = await work()
        self.write_told()
        self._faults.point(f"after {name}")
        return done
