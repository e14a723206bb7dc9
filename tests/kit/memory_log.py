"""A shared store with a log in memory: its members, and faults between them and the log.

async with joined(log, folder, "b") as b:
    b.wire.next.append("lost")             # the next fact is stored, but its acknowledgement is lost
    b.copy.open.clear()                    # stored facts do not reach the index until it is set
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NoReturn

from agent_service.store.database import open_database
from agent_service.store.rows import apply_message
from agent_service.store.shared import SharedStore
from groundwork.nats.following import Batch
from groundwork.nats.publishing import StoredMessage, subject_matches
from groundwork.nats.shared_log import ALL, AppendConflict, Extent, SharedLog
from groundwork.service.errors import NoRoom, TryAgain
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.replica import Apply, Replica
from schemas.status import Halt
from tests.kit.runs import NOON


class MemoryLog(SharedLog):
    """Log of a shared store. Every append is acknowledged, and every read returns the newest."""

    def __init__(self) -> None:
        self.facts: list[StoredMessage] = []
        self._last = 0
        self._news = asyncio.Event()

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = {}, among: str = ""
    ) -> int:
        await asyncio.sleep(0)
        return self.store(subject, body, after=after, headers=headers, among=among)

    def store(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = {}, among: str = ""
    ) -> int:
        if after is not None and after != self.position_of(among or subject):
            raise AppendConflict(f"{subject} has moved on")
        self._last += 1
        self.facts.append(StoredMessage(seq=self._last, subject=subject, body=body, headers=headers, at=NOON))
        self._news.set()
        self._news = asyncio.Event()
        return self._last

    def position_of(self, subject: str) -> int:
        return next((fact.seq for fact in reversed(self.facts) if subject_matches(subject, fact.subject)), 0)

    async def newest(self, subject: str) -> StoredMessage | None:
        await asyncio.sleep(0)
        return next((fact for fact in reversed(self.facts) if subject_matches(subject, fact.subject)), None)

    async def read(self, subject: str, after: int, most: int = ALL) -> list[StoredMessage]:
        await asyncio.sleep(0)
        return [fact for fact in self.facts if fact.seq > after and subject_matches(subject, fact.subject)][:most]

    async def end(self) -> int:
        return self._last

    async def extent(self, seq: int = 0) -> Extent:
        del seq
        return Extent("", self._last, sum(len(fact.body) for fact in self.facts), None)

    async def purge(self, subject: str) -> None:
        self.facts = [fact for fact in self.facts if fact.subject != subject]

    async def follow(self, after: int) -> AsyncGenerator[Batch, None]:
        while True:
            while self._last <= after:
                await self._news.wait()
            some = [fact for fact in self.facts if fact.seq > after]
            after = self._last
            yield Batch(some, after)


class MemoryCopy(Replica):
    """Applies the facts of a log to a database, all available ones in one transaction."""

    def __init__(self, log: MemoryLog, database: SqliteFile, apply: Apply) -> None:
        self._log = log
        self._database = database
        self._apply = apply
        self._moved = asyncio.Condition()
        self.store: SharedStore | None = None
        self.reached = 0
        self.open = asyncio.Event()
        self.open.set()

    async def run(self) -> NoReturn:
        async for batch in self._log.follow(self.reached):
            facts = batch.messages
            await self.open.wait()
            await self._database.write(partial(self._apply_all, facts))
            if self.store:
                self.store.applied(facts)
            async with self._moved:
                self.reached = batch.last_seq
                self._moved.notify_all()
        raise AssertionError("a log has no end")

    async def wait(self, seq: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.reached >= seq)

    async def caught_up(self) -> None:
        await self.wait(await self._log.end())

    def _apply_all(self, facts: Sequence[StoredMessage], connection: sqlite3.Connection) -> None:
        for fact in facts:
            self._apply(connection, fact)


class Wire(MemoryLog):
    """One member's connection to the log. `next` says what happens to its next append: stored without an answer, or
    refused."""

    __slots__ = ("next",)

    def __init__(self, log: MemoryLog) -> None:
        self.__dict__ = log.__dict__
        self.next: deque[Literal["lost", "full"]] = deque()

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = {}, among: str = ""
    ) -> int:
        fate = self.next.popleft() if self.next else None
        if fate == "full":
            raise NoRoom("the stream is full")
        seq = await super().append(subject, body, after=after, headers=headers, among=among)
        if fate == "lost":
            raise TryAgain("no answer")
        return seq


async def held() -> None:
    """Check of a lease that is never lost."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One process that shares the store."""

    store: SharedStore
    wire: Wire
    copy: MemoryCopy
    halts: list[Halt]


@asynccontextmanager
async def joined(log: MemoryLog, folder: Path) -> AsyncIterator[Member]:
    """A process with its own copy in `folder`, which starts empty each time."""
    wire = Wire(log)
    with TemporaryDirectory(dir=folder) as place:
        async with open_database(Path(place)) as database, asyncio.TaskGroup() as group:
            copy = MemoryCopy(
                log, database, lambda connection, fact: apply_message(connection, replace(fact, body=b""))
            )
            store = copy.store = SharedStore(database, wire, copy, held=held)
            copying = group.create_task(copy.run())
            await copy.caught_up()
            await store.begin()
            member = Member(store=store, wire=wire, copy=copy, halts=[])
            store.on_halt = member.halts.append
            yield member
            copying.cancel()
