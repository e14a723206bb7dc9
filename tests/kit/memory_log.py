"""The log of a shared store in memory, and a copy of it: what JetStream and SQLite do, without servers and disks."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from agent_service.store.applying import Applying
from agent_service.store.shared import SharedStore
from groundwork.nats.shared_log import Fact, Moved
from groundwork.sqlite.file import SqliteFile
from tests.kit.runs import NOON


class MemoryLog:
    """Fills what a shared store stands on. Every append is acknowledged, and every read is of the newest."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._last = 0
        self._news = asyncio.Condition()

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] | None = None
    ) -> int:
        await asyncio.sleep(0)
        seq = self.store(subject, body, after=after, headers=headers)
        async with self._news:
            self._news.notify_all()
        return seq

    def store(self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] | None = None) -> int:
        if after is not None and after != self.position_of(subject):
            raise Moved(f"{subject} has moved on")
        self._last += 1
        self.facts.append(Fact(seq=self._last, subject=subject, body=body, headers=headers or {}, at=NOON))
        return self._last

    def position_of(self, subject: str) -> int:
        return next((fact.seq for fact in reversed(self.facts) if fact.subject == subject), 0)

    async def newest(self, subject: str) -> Fact | None:
        await asyncio.sleep(0)
        return next((fact for fact in reversed(self.facts) if fact.subject == subject), None)

    async def end(self) -> int:
        return self._last

    async def purge(self, subject: str) -> None:
        self.facts = [fact for fact in self.facts if fact.subject != subject]

    async def follow(self, after: int) -> AsyncIterator[Sequence[Fact]]:
        while True:
            async with self._news:
                while self._last <= after:
                    await self._news.wait()
            some = [fact for fact in self.facts if fact.seq > after]
            after = self._last
            yield some


class MemoryCopy:
    """Applies the facts of a log to a database, one transaction for all that there are."""

    def __init__(self, log: MemoryLog, database: SqliteFile, applying: Applying) -> None:
        self._log = log
        self._database = database
        self._applying = applying
        self._moved = asyncio.Condition()
        self.store: SharedStore | None = None
        self.reached = 0

    async def run(self) -> None:
        async for facts in self._log.follow(self.reached):
            await self._database.write(partial(self._apply, facts))
            if self.store:
                self.store.applied(facts)
            async with self._moved:
                self.reached = facts[-1].seq
                self._moved.notify_all()

    async def wait(self, seq: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.reached >= seq)

    async def caught_up(self) -> None:
        await self.wait(await self._log.end())

    def _apply(self, facts: Sequence[Fact], connection: sqlite3.Connection) -> None:
        for fact in facts:
            self._applying.apply(connection, fact)


class MemoryMembers:
    """Those who live are said; the heir of all that is left is the first of them."""

    def __init__(self, me: str, live: frozenset[str] | None = None) -> None:
        self.me = me
        self.live = live or frozenset({me})

    def mine(self, owner: str, key: str) -> bool:
        del key
        return owner == self.me or (owner not in self.live and min(self.live) == self.me)
