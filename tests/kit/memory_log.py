"""A shared store with a log in memory: its members, and faults between them and the log.

async with joined(log, folder, "b") as b:
    b.wire.next.append("lost")             # the next fact is stored, but its acknowledgement is lost
    b.wire.open.clear()                    # stored facts do not reach the index until it is set
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from agent_service.store.shared import SharedStore, open_shared
from groundwork.nats.publishing import StoredMessage, subject_matches
from groundwork.nats.shared_log import ALL, AppendConflict, Batch, Extent, SharedLog
from groundwork.service.errors import NoRoom, TryAgain
from schemas.status import Halt
from tests.kit.runs import NOON


class MemoryLog(SharedLog):
    """Log of a shared store. Every append is acknowledged, and every read returns the newest."""

    stream = "MEMORY"

    def __init__(self) -> None:
        self.facts: list[StoredMessage] = []
        self._last = 0
        self._news = asyncio.Event()

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = {}, among: str = ""
    ) -> int:
        newest = await self.newest(among or subject)
        if after is not None and after != (newest.seq if newest else 0):
            raise AppendConflict(f"{subject} has moved on")
        self._last += 1
        self.facts.append(StoredMessage(seq=self._last, subject=subject, body=body, headers=headers, at=NOON))
        self._news.set()
        self._news = asyncio.Event()
        return self._last

    async def newest(self, subject: str) -> StoredMessage | None:
        await asyncio.sleep(0)
        return next((fact for fact in reversed(self.facts) if subject_matches(subject, fact.subject)), None)

    async def read(self, subject: str, after: int, most: int = ALL) -> list[StoredMessage]:
        await asyncio.sleep(0)
        return [fact for fact in self.facts if fact.seq > after and subject_matches(subject, fact.subject)][:most]

    async def end(self) -> int:
        return self._last

    async def extent(self) -> Extent:
        return Extent("", self._last, sum(len(fact.body) for fact in self.facts))

    async def stored_at(self, seq: int) -> datetime | None:
        return next((fact.at for fact in self.facts if fact.seq == seq), None)

    async def purge(self, subject: str, *, up_to: int | None = None) -> None:
        most = self._last if up_to is None else up_to
        self.facts = [fact for fact in self.facts if fact.subject != subject or fact.seq > most]

    async def follow(self, after: int) -> AsyncGenerator[Batch, None]:
        while True:
            while self._last <= after:
                await self._news.wait()
            some = [fact for fact in self.facts if fact.seq > after]
            after = self._last
            yield Batch(some, after, at=NOON)


class Wire(MemoryLog):
    """One member's connection to the log. `next` says what happens to its next append: stored without an answer, or
    refused. What is stored comes to its followers while it is `open`."""

    __slots__ = ("headers_only", "next", "open")

    def __init__(self, log: MemoryLog, *, headers_only: bool = False) -> None:
        self.__dict__ = log.__dict__
        self.headers_only = headers_only
        self.next: deque[Literal["lost", "full"]] = deque()
        self.open = asyncio.Event()
        self.open.set()

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = {}, among: str = ""
    ) -> int:
        fate = self.next.popleft() if self.next else None
        if fate == "full":
            raise NoRoom("the stream is full")
        seq = await super().append(subject, body, after=after, headers=headers, among=among)
        if fate == "lost":
            raise TryAgain("no answer", delay_s=0.0)
        return seq

    async def follow(self, after: int) -> AsyncGenerator[Batch, None]:
        async for batch in super().follow(after):
            await self.open.wait()
            facts = [replace(fact, body=b"") if self.headers_only else fact for fact in batch.messages]
            yield replace(batch, messages=facts)


@dataclass(frozen=True, kw_only=True)
class Member:
    store: SharedStore
    wire: Wire
    halts: list[Halt]


@asynccontextmanager
async def joined(log: MemoryLog, folder: Path) -> AsyncIterator[Member]:
    """A process with its own copy in `folder`, which starts empty each time."""
    wire = Wire(log, headers_only=True)
    with TemporaryDirectory(dir=folder) as place:
        async with open_shared(Path(place), wire) as store:
            member = Member(store=store, wire=wire, halts=[])
            store.on_halt = member.halts.append
            yield member
