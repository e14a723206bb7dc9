"""Runs that go through an archive are stored as they were, in whatever state each is: in a database, and in a log."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_service.archive.access import ArchivedRun, ArchivedRuns, StoreReader
from agent_service.archive.access import commits_of as decided_again
from agent_service.archive.pruning import delete_runs, leftovers, mark_cleared
from agent_service.archive.restoring import Followed, append_runs, load_runs
from agent_service.archive.retention import EndedRun
from agent_service.archive.verifying import checked_journal
from agent_service.archive.writing import ArchiveReport, _add_runs, placed, side_records, stored_runs
from agent_service.core.waiting import Status
from agent_service.run.journal import Entry
from agent_service.run.ports import Dismissal
from agent_service.store.database import FILE, open_database
from agent_service.store.messages import ROW
from agent_service.store.runs import RunStore
from groundwork.archive.format import Archive, open_writer
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile
from schemas import subjects
from schemas.status import Halt
from tests.core.script import commits_of
from tests.core.words import STAGES, STEP, run_at
from tests.kit.memory_log import MemoryLog, joined
from tests.kit.runs import DIGEST, NOON, accepted, run_id, started, whole_run
from tests.ports.stores import as_loaded, stored

STATES = (
    *(f"run {stage}" for stage in STAGES),
    "run reflecting ; unavailable pause",
    "run waiting on_budget=pause ; wait 1h ; early",
    "run waiting ; error upstream retry",
    "run reflecting ; done",
    "run waiting browse ; return ; reflect continue ; plan post",
    "run planning ; ask",
    "run reflecting ; rest 600",
    "run waiting ledger ; error in_doubt",
    "run reflecting max_notes=300 ; 7x step",
)
LAST = 3 * len(STATES) + 1
TABLES = {
    "runs": "run_id, wake_id, wake_digest, accepted_at, status, version, head, summary, due_at, state, goal",
    "runs AS index_row": "run_id, dispatched, line, bytes",
    "entries": "run_id, seq, position, at, kind, event, facts, previous, hash",
    "whole_briefs": "run_id, brief",
    "items": "run_id, field, item",
    "dismissals": "run_id, version, by, at",
    "gone": "run_id, wake_id, wake_digest, status, ended_at, at, rule",
    "artifacts_gone": "run_id, at, rule",
    "spending": "day, caller, round(usd, 9), bytes",
    "halts": "number, since, by, reason, until, until_by, over",
}


def rows(folder: Path, *, without: str = "") -> dict[str, list[tuple[object, ...]]]:
    """All that a store holds, byte for byte; `without` a column."""
    found = {}
    with closing(sqlite3.connect(folder / FILE)) as database:
        for table, columns in TABLES.items():
            named = columns.replace(without, "1") if without else columns
            found[table] = sorted(database.execute(f"SELECT {named} FROM {table}"), key=repr)  # noqa: S608 - names of ours
    return found


async def fill(store: RunStore) -> None:
    """Runs at every point of their way; one was dismissed, of one only the tombstone is left, and all was stopped."""
    for number, state in enumerate(STATES):
        begun, _, more = state.partition(" ; ")
        for which, then in enumerate(("", "cancel", "approve"), start=1):
            named = f"run_id={run_id(3 * number + which)} wake_id=wake-{number}-{which}"
            await stored(store, commits_of(run_at(f"{begun} {named} ; {more} ; {then}", step=STEP)))
    ended = await stored(store, commits_of(run_at(f"wake run_id={run_id(LAST)} wake_id=wake-last ; cancel")))
    store.mark_dispatched(run_id(1), 1)
    store.mark_dispatched(run_id(LAST), ended.entry.seq)
    store._write_dispatched()
    await store.dismiss(Dismissal(run_id=run_id(3), version=2, by="ann", at=NOON))
    gone = EndedRun(run_id=run_id(LAST), status=Status.CANCELLED, version=ended.entry.seq, at=NOON)
    assert await delete_runs(store, [gone], "agent.keep_runs.done_days: 1", NOON + timedelta(days=9))
    done = EndedRun(run_id=run_id(25), status=Status.DONE, version=store.version(run_id(25)), at=NOON)
    await delete_runs(store, [done], "agent.keep_runs.artifacts_days: 1", NOON, artifacts_only=True)
    await store.keep_halt(Halt(number=1, since=NOON, by="bob", reason="lunch", until=NOON, until_by="bob", over=True))


@asynccontextmanager
async def source(folder: Path) -> AsyncIterator[SqliteFile]:
    async with RunStore.open(folder) as store:
        await fill(store)
    async with open_database(folder) as database:
        yield database


async def entries(database: SqliteFile, run: ArchivedRun) -> list[Entry]:
    return list(await RunStore(database).entries(run.run_id))


async def followed(database: SqliteFile) -> list[Followed]:
    store = RunStore(database)
    runs = [(await placed(store, run), await entries(database, run)) async for run in stored_runs(store)]
    return [(run, decided_again(run, journal)) for run, journal in runs]


async def copied(database: SqliteFile, log: MemoryLog) -> None:
    await append_runs(log, await followed(database), await side_records(RunStore(database)))


async def test_a_database_that_is_written_from_the_entries_of_another_holds_the_same_rows(tmp_path: Path) -> None:
    async with source(tmp_path / "old") as old, open_database(tmp_path / "new") as new:
        await load_runs(new, await followed(old))
        await RunStore(new).put(*await side_records(RunStore(old)), after=None)
        assert RunStore(new).newest() == RunStore(old).newest(), "positions are never given twice"
    assert rows(tmp_path / "new") == rows(tmp_path / "old")


async def test_a_log_holds_every_run_and_tombstone_and_an_agent_goes_on_with_it(tmp_path: Path) -> None:
    log = MemoryLog()
    async with source(tmp_path / "old") as old:
        await copied(old, log)
        stone = await RunStore(old).tombstone(run_id(LAST))
    async with joined(log, tmp_path) as member:
        assert stone is not None
        found = await member.store.tombstone(run_id(LAST))
        assert found is not None
        assert (found.wake_id, found.ended_at, found.last) == (stone.wake_id, stone.ended_at, stone.last)
        waiting = commits_of(run_at(f"wake run_id={run_id(1)} wake_id=wake-0-1"))[-1]
        assert await member.store.load(run_id(1)) == as_loaded(waiting)
        await member.store.commit(started(waiting))
        await member.store.caught_up()
        assert member.store.version(run_id(1)) == 2


def reader_of(store: RunStore) -> StoreReader:
    about: Any = {"config": None, "settings": None, "ring": None, "workspace": None, "opened": AsyncExitStack()}
    return StoreReader(store=store, **about)


async def test_a_run_that_goes_on_while_a_log_is_backed_up_is_read_as_it_stood_and_one_that_cannot_be_is_left_out(
    tmp_path: Path,
) -> None:
    """One that is deleted meanwhile leaves its tombstone."""
    log, file, report = MemoryLog(), tmp_path / "it.zip", ArchiveReport(what="", file="")
    *runs, (*begun, newest) = [*(whole_run(number) for number in range(1, 4)), whole_run(4)[:3]]
    damaged, newer, deleted = [commits[-1].state for commits in runs]
    async with joined(log, tmp_path) as agent, joined(log, tmp_path) as member:
        for commits in (*runs, begun):
            await stored(agent.store, commits)
        for state, header in ((damaged, {}), (newer, {ROW: '{"v":9999}'})):
            await log.append(subjects.stored_run(state.wake_id, state.run_id), b"{}", after=None, headers=header)
        await member.store.caught_up()
        positions = member.store.positions

        async def overtaken(run_id: str) -> tuple[int, ...]:
            if run_id == damaged.run_id:
                gone = EndedRun(run_id=deleted.run_id, status=deleted.status, version=deleted.version, at=NOON)
                await delete_runs(agent.store, [gone], "done_days: 1", NOON)
                await mark_cleared(agent.store, await leftovers(agent.store, 1))
                await member.store.caught_up()
            if run_id == newest.run_id:
                member.wire.open.clear()
                await agent.store.commit(newest)
            return await positions(run_id)

        member.store.positions = overtaken  # type: ignore[method-assign]
        with open_writer(file, None) as archive:
            await _add_runs(reader_of(member.store), archive, report)
        member.wire.open.set()
    assert report.left_out.keys() == {damaged.run_id, newer.run_id}
    with Archive.open(file) as made:
        archived = ArchivedRuns(made)
        (stone,), (run,) = archived.side_records(), archived.all
        assert decided_again(run, archived.entries(run.run_id))[-1].state == begun[-1].state
    assert stone.subject == subjects.stored_beside("gone", deleted.run_id)


async def test_a_run_that_goes_on_while_a_log_is_verified_has_no_flaw(tmp_path: Path) -> None:
    log, (*begun, newest) = MemoryLog(), whole_run(1)[:3]
    async with joined(log, tmp_path) as agent, joined(log, tmp_path) as member:
        await stored(agent.store, begun)
        await member.store.caught_up()
        row = member.store.row

        async def overtaken(run_id: str) -> tuple[object, ...]:
            found = await row(run_id)
            if found[0] < newest.entry.seq:
                await agent.store.commit(newest)
                await member.store.caught_up()
            return found

        member.store.row = overtaken  # type: ignore[method-assign]
        flaws, commits = await checked_journal(reader_of(member.store), run_id(1))
    assert (flaws, len(commits)) == ([], newest.entry.seq)


async def test_an_interrupted_copy_is_finished_by_the_next_and_nothing_is_there_twice(tmp_path: Path) -> None:
    async with source(tmp_path / "old") as old:
        whole = MemoryLog()
        await copied(old, whole)
        in_journals = len(await old.read("SELECT 1 FROM journal"))
        for after in (1, 7, 64, in_journals):
            log = MemoryLog()
            for fact in whole.facts[:after]:
                await log.append(fact.subject, fact.body, after=None, headers=fact.headers)
            await copied(old, log)
            assert sorted(fact.body for fact in log.facts) == sorted(fact.body for fact in whole.facts)


async def test_a_log_that_holds_another_entry_in_a_place_is_refused(tmp_path: Path) -> None:
    log = MemoryLog()
    async with source(tmp_path / "old") as old:
        await copied(old, log)
    async with RunStore.open(tmp_path / "other") as store:
        other = accepted(5, wake_id="wake-1-2", goal="another")
        await store.accept(other, DIGEST)
    async with open_database(tmp_path / "other") as database:
        with pytest.raises(Misconfigured, match="another entry"):
            await copied(database, log)


async def test_entries_that_are_not_those_of_their_run_or_cannot_be_followed_are_no_facts(tmp_path: Path) -> None:
    async with source(tmp_path / "old") as old:
        run, other, *_ = [run async for run in stored_runs(RunStore(old)) if run.version > 2]
        journal = await entries(old, run)
        for wrong, why in (
            (journal[:-1], "says something else of the run than its journal"),
            ([], "has no entries"),
            (journal[1:], "entry 1 is missing"),
            (await entries(old, other), "belongs to run"),
        ):
            with pytest.raises(ValueError, match=why):
                decided_again(run, wrong)
