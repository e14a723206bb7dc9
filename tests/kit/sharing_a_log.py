"""Members of a store whose log is in memory, each with a copy of its own in SQLite: the real shared store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from agent_service.run.journal import Commit
from agent_service.run.moments import Elsewhere
from agent_service.run.ports import Wake
from agent_service.store.shared_log.applying import Applying
from agent_service.store.shared_log.store import SharedStore
from agent_service.store.sql.database import open_database
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile
from tests.kit.memory_log import MemoryCopy, MemoryLog, Wire


class Company:
    """Who lives, as one of them sees it: all see the same."""

    def __init__(self, me: str, live: list[str]) -> None:
        self.me = me
        self._live = live

    @property
    def live(self) -> frozenset[str]:
        return frozenset(self._live) | {self.me}

    def mine(self, owner: str, key: str) -> bool:
        del key
        return owner == self.me or (owner not in self._live and self._live[:1] == [self.me])


class LogMember(SharedStore):
    """One process's store, and what may befall it."""

    def __init__(self, database: SqliteFile, on: tuple[Wire, MemoryCopy, Company], applying: Applying) -> None:
        super().__init__(database, on, applying, held=self._lease)
        self._wire, _, company = on
        self.me = company.me
        self.fenced = self.deaf = self._loses_word = False

    async def _lease(self) -> None:
        if self.fenced:
            raise TryAgain("another agent has taken this one's place", delay_s=0)

    def loses_word(self) -> None:
        """Its next commit is stored without its hearing so."""
        self._loses_word = True

    async def accept(self, wake: Wake, commit: Commit) -> str:
        with self._late_arrival():
            return await super().accept(wake, commit)

    async def commit(self, commit: Commit) -> None:
        with self._late_arrival():
            await super().commit(commit)

    @contextlib.contextmanager
    def _late_arrival(self) -> Iterator[None]:
        """What its word was lost of is stored nevertheless, right after."""
        self._wire.next += ["late"] * self._loses_word
        self._loses_word = False
        try:
            yield
        except TryAgain:
            self._arriving = asyncio.ensure_future(self._wire.arrive())
            raise
        finally:
            self._wire.next.clear()

    def listen(self, hears: Callable[[Elsewhere], None]) -> None:
        def hear(told: Elsewhere) -> None:
            if not self.deaf:
                hears(told)

        self.on_elsewhere = hear


class SharedLog:
    """All of them, and what they share. `live`: those that are, in the order in which they inherit."""

    def __init__(self, live: list[str], members: dict[str, LogMember], first: SqliteFile) -> None:
        self.live = live
        self.members = members
        self._first = first

    async def who(self, run_id: str) -> list[str]:
        """Who has committed the entries of a run."""
        rows = await self._first.read('SELECT "by" FROM journal WHERE run_id = ? ORDER BY seq', (run_id,))
        return [by for (by,) in rows]


@contextlib.asynccontextmanager
async def members_of_a_log(names: str, folder: Path) -> AsyncIterator[SharedLog]:
    log, live, members = MemoryLog(), list(names), {}
    async with contextlib.AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(open_database(folder / name)) for name in names]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        copying = []
        for name, database in zip(names, databases, strict=True):
            applying = Applying()
            copy = MemoryCopy(log, database, applying)
            members[name] = member = LogMember(database, (Wire(log), copy, Company(name, live)), applying)
            copy.store = member
            copying.append(group.create_task(copy.run()))
            await member.begin()
        yield SharedLog(live, members, databases[0])
        for task in copying:
            task.cancel()
