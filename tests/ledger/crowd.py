"""Gateways that share their stores: over a log in memory, which can be behind, lose its word, or hold up a change."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from ductile_gateway.store import open_store
from ductile_gateway.store.shared.call_rows import CallRows
from ductile_gateway.store.shared.copy import apply
from ductile_gateway.store.shared.opening import shared_stores
from ductile_gateway.store.shared.rows import Rows
from ductile_gateway.store.stores import Stores
from groundwork.nats.shared_log import Fact, Moved
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile
from tests.gateway.parts import MemoryFile


class MemoryLog:
    """The newest fact of each subject, as the leader of a stream would keep those that take the place of others."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.appended: list[Fact] = []
        self.copies: list[MemoryCopy] = []
        self.overtaken_by: Callable[[], Awaitable[object]] | None = None
        """What is done before the next append, by another gateway."""
        self.on_the_way: Callable[[], Awaitable[object]] = nothing
        """What happens while a question or an answer is on its way."""
        self.loses: Callable[[], str] = str
        """Of an append: "it" before it is stored, its "word" that it was; else nothing."""

    async def append(self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = {}) -> int:
        if (faster := self.overtaken_by) is not None:
            self.overtaken_by = None
            await faster()
        await self.on_the_way()
        lost = self.loses()
        if lost == "it":
            raise TryAgain("not known to be stored")
        fact = self._stored(subject, body, after, headers)
        for copy in self.copies:
            await copy.follow()
        await self.on_the_way()
        if lost == "word":
            raise TryAgain("not known to be stored")
        return fact.seq

    async def newest(self, subject: str) -> Fact | None:
        await self.on_the_way()
        return self.facts.get(subject)

    async def purge(self, subject: str) -> None:
        self.facts.pop(subject, None)

    def _stored(self, subject: str, body: bytes, after: int | None, headers: Mapping[str, str]) -> Fact:
        newest = self.facts.get(subject)
        if after is not None and after != (newest.seq if newest else 0):
            raise Moved(subject)
        seq, at = len(self.appended) + 1, datetime.now(UTC)
        fact = self.facts[subject] = Fact(seq=seq, subject=subject, body=body, headers=headers, at=at)
        self.appended.append(fact)
        return fact


async def nothing() -> None:
    """Nothing happens."""


class MemoryCopy:
    """A gateway's copy of the log, which applies nothing while it is `behind`."""

    def __init__(self, log: MemoryLog, file: SqliteFile, apply: Callable[[sqlite3.Connection, Fact], None]) -> None:
        self._log = log
        self._file = file
        self._apply = apply
        self._reached = 0
        self.behind = False

    async def wait(self, seq: int) -> None:
        del seq

    async def follow(self) -> None:
        """Apply what of the log is still there, as a stream would bring it."""
        if self.behind:
            return
        kept = {fact.seq for fact in self._log.facts.values()}
        for fact in self._log.appended[self._reached :]:
            if fact.seq in kept:
                await self._file.write(lambda connection, fact=fact: self._apply(connection, fact))  # type: ignore[misc]
        self._reached = len(self._log.appended)


class Party:
    """Who lives, of a set that a test changes. `me` is one of them; the heir of who is gone is the first of them."""

    def __init__(self, me: str, live: set[str]) -> None:
        self.me = me
        self._live = live

    @property
    def live(self) -> frozenset[str]:
        return frozenset(self._live)

    def heir(self, key: str) -> str:
        del key
        return min(self._live)

    def mine(self, owner: str, key: str) -> bool:
        return owner == self.me or (owner not in self._live and self.heir(key) == self.me)


class Crowd:
    """Several gateways over one log. `live`: those who live, by name."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog()
        self.live = {"a", "b"}
        self.copies: dict[str, MemoryCopy] = {}
        self._folder = folder

    @asynccontextmanager
    async def gateway(self, name: str, *, run_bytes: int = 1 << 30) -> AsyncIterator[Stores]:
        """One of them, with its copy in a folder of its own."""
        (folder := self._folder / name).mkdir(exist_ok=True)
        async with open_store(folder) as file, self.over(file, name, run_bytes=run_bytes) as stores:
            yield stores

    def in_memory(self, name: str) -> AbstractAsyncContextManager[Stores]:
        """One of them, whose copy nobody needs later."""
        return self.over(cast("SqliteFile", MemoryFile()), name)

    @asynccontextmanager
    async def over(self, file: SqliteFile, name: str, *, run_bytes: int = 1 << 30) -> AsyncIterator[Stores]:
        """One of them, with its copy in this file."""
        copy = self.copies[name] = MemoryCopy(self.log, file, apply)
        self.log.copies.append(copy)
        await copy.follow()
        rows = Rows(self.log, copy.wait)
        calls = CallRows(rows)
        members = Party(name, self.live)
        writing = asyncio.create_task(calls.write_soon())
        try:
            yield shared_stores(file, rows, calls, members=members, run_bytes=run_bytes)
        finally:
            writing.cancel()
            self.log.copies.remove(copy)
