"""Runs that move into the log of a shared store are there as they were: entry by entry, in whatever state each is."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.archive.retention import Ended
from agent_service.core.waiting import Status
from agent_service.run.ports import Dismissal
from agent_service.store.shared_log.applying import Applying
from agent_service.store.shared_log.moving import IntoLog, differences
from agent_service.store.sql.database import open_database
from agent_service.store.sqlite import SqliteStore
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile
from schemas.status import Halt
from tests.kit.memory_log import MemoryCopy, MemoryLog, joined
from tests.kit.runs import NOON, accepted, run_id, started, wake_of, whole_run
from tests.ports.stores import as_loaded, stored, untold

MANY = 40


@dataclass(frozen=True, slots=True)
class Target:
    """A log in memory, and a copy of it that was made just now."""

    log: MemoryLog
    copied: SqliteFile
    into: IntoLog


@asynccontextmanager
async def target(folder: Path, log: MemoryLog) -> AsyncIterator[Target]:
    async with open_database(folder) as copied, asyncio.TaskGroup() as group:
        copy = MemoryCopy(log, copied, Applying())
        copying = group.create_task(copy.run())
        yield Target(log, copied, IntoLog(log, copy, copied))
        copying.cancel()


@asynccontextmanager
async def source(folder: Path) -> AsyncIterator[SqliteFile]:
    """With runs that ended, that go on, and that nobody has begun; one was dismissed, and all was stopped once."""
    async with SqliteStore.open(folder) as store:
        if not await store.runs(limit=1):
            await _filled(store)
    async with open_database(folder) as database:
        yield database


async def _filled(store: SqliteStore) -> None:
    for number in range(1, MANY):
        await stored(store, whole_run(number, steps=number % 5 + 1)[: -(number % 3) or None])
    waiting = accepted(MANY)
    await store.accept(wake_of(waiting), waiting)
    store.told(run_id(1), 3)
    store.told(run_id(2), store.version(run_id(2)))
    await store.inbox.dismiss(Dismissal(run_id=run_id(3), version=2, by="ann", at=NOON))
    await store.halts.keep(Halt(number=1, since=NOON, by="bob", reason="lunch", until=NOON, until_by="bob", over=True))


async def test_every_run_is_in_the_log_as_it_was_and_an_agent_goes_on_with_it(tmp_path: Path) -> None:
    """Also what is left of one that is kept no longer."""
    log = MemoryLog()
    async with SqliteStore.open(tmp_path / "old") as filled:
        await _filled(filled)
        gone = Ended(run_id=run_id(6), status=Status.DONE, version=filled.version(run_id(6)), at=NOON)
        filled.told(gone.run_id, gone.version)
        filled._write_told()
        assert await filled.forgetting.forget([gone], "agent.keep_runs.done_days: 1", NOON + timedelta(days=9))
        stone = await filled.tombstone(gone.run_id)
    assert stone is not None
    async with source(tmp_path / "old") as old, target(tmp_path / "copy", log) as new:
        assert await new.into.move(old) == len(await old.read("SELECT 1 FROM journal"))
        assert await differences(old, new.copied) == []
    async with joined(log, tmp_path, "me") as member:
        assert await member.store.tombstone(gone.run_id) == replace(stone, last=0)
        store, waiting = member.store, accepted(MANY)
        assert await store.load(run_id(MANY)) == as_loaded(waiting)
        await store.commit(started(waiting))
        assert store.version(run_id(MANY)) == 2
        assert (run_id(1), 3) in [(run, told) for run, told, _ in await untold(store)]
        assert len(await store.entries(run_id(5))) == store.version(run_id(5))


async def test_a_move_that_was_interrupted_is_finished_by_the_next(tmp_path: Path) -> None:
    async with source(tmp_path / "old") as old:
        async with target(tmp_path / "whole", MemoryLog()) as whole:
            await whole.into.move(old)
            facts = whole.log.facts
        entries = len(await old.read("SELECT 1 FROM journal"))
        for after in (1, 7, 64, len(facts)):
            log = MemoryLog()
            for fact in facts[:after]:
                log.store(fact.subject, fact.body, after=None)
            async with target(tmp_path / str(after), log) as new:
                assert await new.into.move(old) == max(0, entries - after)
                assert await differences(old, new.copied) == []
            assert after < len(facts) or len(log.facts) == after, "nothing is moved twice"


async def test_a_log_that_holds_another_entry_in_a_place_is_refused(tmp_path: Path) -> None:
    log = MemoryLog()
    async with source(tmp_path / "old") as old, target(tmp_path / "copy", log) as new:
        await new.into.move(old)
    async with SqliteStore.open(tmp_path / "other") as store:
        await stored(store, [accepted(5, goal="another")])
    async with open_database(tmp_path / "other") as other, target(tmp_path / "again", log) as new:
        with pytest.raises(Misconfigured, match="another entry 1"):
            await new.into.move(other)


async def test_a_row_that_is_not_what_it_was_is_found(tmp_path: Path) -> None:
    async with source(tmp_path / "old") as old, target(tmp_path / "copy", MemoryLog()) as new:
        await new.into.move(old)
        with closing(sqlite3.connect(new.copied.path)) as database, database:
            database.execute("UPDATE journal SET event = '{}' WHERE run_id = ? AND seq = 2", (run_id(4),))
        assert await differences(old, new.copied) == [f"journal: {run_id(4)} 2 is another"]
