"""The stores of gateways under test: of one, of several over a log in memory, whose copies can
be behind, and of several on a bus; and what is put into them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent_service.bus.topology import topology
from ductile_gateway.calls.call import Answer, Intent, ToolOutcome
from ductile_gateway.calls.results import answer_to
from ductile_gateway.outbound.notifications import Notification
from ductile_gateway.store import open_store
from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.shared.call_rows import CallRows
from ductile_gateway.store.shared.copy import apply
from ductile_gateway.store.shared.opening import open_shared, shared_stores
from ductile_gateway.store.shared.rows import Rows
from ductile_gateway.store.stores import Stores
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import Fact, Moved
from groundwork.nats.topology import create_missing
from groundwork.sqlite.file import SqliteFile
from schemas.signing import AgentKey
from tests.gateway.parts import NOON, RUN, a_request, asked_for
from tests.kit.waiting import until

SECOND = timedelta(seconds=1)
NAMES = ("a.md", "a-02.md", "a-x.md")
FIRST = AgentKey(id="k1", public="A" * 43)


class MemoryLog:
    """The newest fact of each subject, as the leader of a stream would keep those that take the place of others."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.appended: list[Fact] = []
        self.copies: list[MemoryCopy] = []

    async def append(self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = {}) -> int:
        newest = self.facts.get(subject)
        if after is not None and after != (newest.seq if newest else 0):
            raise Moved(subject)
        seq, at = len(self.appended) + 1, datetime.now(UTC)
        self.facts[subject] = Fact(seq=seq, subject=subject, body=body, headers=headers, at=at)
        self.appended.append(self.facts[subject])
        for copy in self.copies:
            await copy.follow()
        return seq

    async def newest(self, subject: str) -> Fact | None:
        return self.facts.get(subject)

    async def purge(self, subject: str) -> None:
        self.facts.pop(subject, None)


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
        async with open_store(folder) as file:
            copy = self.copies[name] = MemoryCopy(self.log, file, apply)
            self.log.copies.append(copy)
            await copy.follow()
            rows = Rows(self.log, copy.wait)
            calls = CallRows(rows)
            writing = asyncio.create_task(calls.write_soon())
            try:
                yield shared_stores(file, rows, calls, members=Party(name, self.live), run_bytes=run_bytes)
            finally:
                writing.cancel()
                self.log.copies.remove(copy)


Opener = Callable[[], AbstractAsyncContextManager[Stores]]
"""Opens the same stores each time it is called; they are closed in between."""
RUN_BYTES = 100


def embedded(folder: Path) -> Opener:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        async with open_store(folder) as file:
            yield Stores.embedded(file, folder=folder, run_bytes=RUN_BYTES)

    return opened


def in_memory(folder: Path) -> Opener:
    crowd = Crowd(folder)
    return lambda: crowd.gateway("a", run_bytes=RUN_BYTES)


def on_a_bus(folder: Path, link: NatsLink) -> Opener:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        await ledger_stream(link)
        async with joined(folder, link, "a", run_bytes=RUN_BYTES) as stores:
            yield stores

    return opened


@asynccontextmanager
async def joined(
    folder: Path, link: NatsLink, name: str, *, live: set[str] | None = None, run_bytes: int = 1 << 30
) -> AsyncIterator[Stores]:
    """A gateway of this name, with its copy in a folder of its own."""
    (own := folder / name).mkdir(exist_ok=True)
    members = Party(name, {name} if live is None else live)
    async with open_shared(own, link, members, run_bytes=run_bytes) as (_, stores):
        yield stores


async def ledger_stream(link: NatsLink) -> None:
    """The stream of facts, as the setup makes it."""
    await create_missing(link, topology(replicas=1, max_gib=1, shared=True))


def an_intent(step: int = 1, *, may_repeat: bool = False) -> Intent:
    asked = asked_for(a_request("save", {"é": [1.5, None, {"a": "b"}]}, step=step))
    return Intent(asked=asked, may_repeat=may_repeat, deadline_at=NOON + 60 * SECOND)


def an_answer(step: int = 1, *, seconds: int = 0, text: str = "done") -> Answer:
    return answer_to(an_intent(step).asked, ToolOutcome("ok", text=text), (), at=NOON + seconds * SECOND)


async def named(ledger: SqliteLedger, run_id: str, key: str, *candidates: tuple[str, ...]) -> tuple[str, ...]:
    return await ledger.name_artifacts(run_id, key, candidates, [f"of {key}"] * len(candidates), [1] * len(candidates))


async def published(ledger: SqliteLedger, *answers: Answer) -> None:
    """They are on the bus, and the ledger knows."""
    for answer in answers:
        ledger.published(answer.key)

    async def known() -> bool:
        left = await ledger.answers_to_publish(NOON + timedelta(days=1))
        return not {answer.key for answer in answers} & {answer.key for answer in left}

    await until(known)


def a_delivery(key: str = "completed", *, target: str = "subscription:a", run_id: str = RUN) -> Notification:
    return Notification(
        target=target,
        lane=target,
        key=f"{run_id}:{key}",
        run_id=run_id,
        type="agent.completed",
        url="https://a.example/secret",
        body=b'{"type": "agent.completed"}',
        accepted_at=NOON,
    )
