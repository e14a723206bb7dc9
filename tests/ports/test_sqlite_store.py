"""The SQLite store alone: the file, its failures, its statements. The rest is in the shared suite."""

import asyncio
import contextlib
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from agent_service.core.events import RunStarted
from agent_service.errors import Damaged
from agent_service.run.journal import flaw_in_chain
from agent_service.store.database import FILE, load_queries, open_database
from agent_service.store.index import SEARCHED_AT_ONCE
from agent_service.store.lines import RunFilter
from agent_service.store.runs import RunStore
from groundwork.nats.lease import LeaseLost
from groundwork.service.errors import Failure, Misconfigured, TryAgain
from groundwork.sqlite.file import SqliteFile
from schemas.catalog import ToolOffer
from tests.kit.disks import watched_disk
from tests.kit.runs import DIGEST, SEARCH, SECOND, accepted, after, run_id, started, whole_run
from tests.ports.stores import as_loaded, stored, undispatched

PAGE = 4096


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    async with open_database(tmp_path / "store") as database:
        yield database


@pytest.fixture
def store(database: SqliteFile) -> RunStore:
    return RunStore(database)


async def accept(store: RunStore, *numbers: int) -> None:
    for number in numbers:
        await store.accept(accepted(number), DIGEST)


async def ask(database: SqliteFile, sql: str) -> int:
    def work(connection: sqlite3.Connection) -> int:
        row = connection.execute(sql).fetchone()
        return int(row[0]) if row else 0

    return await database.write(work)


async def test_a_store_that_is_closed_is_to_be_tried_later(tmp_path: Path) -> None:
    async with RunStore.open(tmp_path) as store:
        await accept(store, 1)
    with pytest.raises(TryAgain, match="after the next start"):
        await accept(store, 2)
    with pytest.raises(TryAgain, match="after the next start"):
        await store.load(run_id(2))
    store.mark_dispatched(run_id(1), 1)


async def test_no_power_loss_costs_an_acknowledged_entry_or_leaves_half_a_commit(tmp_path: Path) -> None:
    """Nor does a kill, which is the power loss that loses nothing."""
    (folder := tmp_path / "store").mkdir()
    commits = {number: whole_run(number, steps=2)[:4] for number in (1, 2)}
    acknowledged: list[tuple[int, int, int]] = []

    async def go_through(store: RunStore, number: int) -> None:
        for commit in commits[number]:
            seq = commit.entry.seq
            await (store.commit(commit) if seq > 1 else store.accept(commit, DIGEST))
            acknowledged.append((len(disk.steps), number, seq))

    async with RunStore.open(folder):
        pass
    with watched_disk(folder) as disk:
        async with RunStore.open(folder) as store:
            await asyncio.gather(*(go_through(store, number) for number in commits))
    for loss, (steps, files) in enumerate(islice(disk.power_losses(Random(1)), 0, None, 2)):  # noqa: S311 - the same each time
        (after := tmp_path / str(loss)).mkdir()
        for name, content in files.items():
            (after / name).write_bytes(content)
        async with RunStore.open(after) as store:
            for number, of_run in commits.items():
                entries = await store.entries(run_id(number))
                assert len(entries) >= max(
                    (seq for at, of, seq in acknowledged if of == number and at <= steps), default=0
                )
                run = await store.load(run_id(number))
                assert (run and run.state) == (of_run[len(entries) - 1].state if entries else None)
                assert flaw_in_chain(entries) is None
        shutil.rmtree(after)


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    parameters = (0,) * (max(numbered) if numbered else statement.count("?"))
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]


SMALL = {"json_each", "tallies", "halts", "CONSTANT", "gone", "artifacts_gone", "listed", "counted"}
"""The last two: of a day."""
READ_WHOLE = {
    "undispatched": ["SCAN runs USING INDEX runs_undispatched"],
    "overdue_turns": ["SCAN runs USING INDEX runs_undispatched"],
    "for_people": ["SCAN runs USING INDEX runs_for_people"],
    "with_artifacts": ["SCAN runs USING INDEX sqlite_autoindex_runs_1"],
    "runs": ["SCAN (subquery-2)"],
    "all_dismissals": ["SCAN dismissals USING INDEX sqlite_autoindex_dismissals_1"],
}
"""Indexes that have no others; all runs, to bring lost artifacts back; all dismissals, for an archive; and the one row
of a text that is looked into."""


def test_no_statement_reads_or_sorts_more_of_a_large_table_than_it_needs(database: SqliteFile) -> None:
    with contextlib.closing(sqlite3.connect(database.path)) as connection:
        plans = {name: plan(connection, statement) for name, statement in load_queries().items()}
    scans = {
        name: [step for step in steps if step.startswith("SCAN") and step.split()[1] not in SMALL]
        for name, steps in plans.items()
    }
    assert {name: steps for name, steps in scans.items() if steps} == READ_WHOLE
    sorts = [name for name, steps in plans.items() if any("TEMP B-TREE" in step for step in steps)]
    assert sorted(sorts) == ["expired", "open_runs", "runs", "sums"], "of one instant, open, within a limit, of a day"
    assert [name for name, steps in plans.items() if any("AUTOMATIC" in step for step in steps)] == []
    assert "SEARCH runs USING INDEX runs_ended (touched_at>?)" in plans["changed_since"], (
        "those of long ago are not read"
    )


async def test_a_list_looks_into_all_runs_there_are_to_find_those_that_are_wanted(store: RunStore) -> None:
    numbers = range(1, SEARCHED_AT_ONCE + 10)
    commits = [accepted(number, goal=f"g{number} ends") for number in numbers]
    await asyncio.gather(*(store.accept(commit, DIGEST) for commit in commits))
    newest_first = [run_id(number) for number in reversed(numbers)]
    assert [line.run_id for line in await store.runs(RunFilter(text="g7 "), limit=5)] == [run_id(7)]
    assert [line.run_id for line in await store.runs(RunFilter(text="ends"), limit=len(numbers))] == newest_first
    before = commits[SEARCHED_AT_ONCE].state.accepted_at
    assert [line.run_id for line in await store.runs(RunFilter(since=before), limit=50)] == newest_first[:9]


async def test_a_run_whose_row_cannot_be_read_is_listed_as_damaged(database: SqliteFile, store: RunStore) -> None:
    await accept(store, 1, 2)
    for line in ("{", '{"waiting_for": {"kind": "asleep"}}', "[]", "7"):
        change = f"UPDATE runs SET line = '{line}' WHERE run_id = '{run_id(1)}'"  # noqa: S608 - our own
        await ask(database, change)
        sound, damaged = await store.runs(limit=5)
        assert (sound.damaged, damaged.damaged, damaged.goal) == ("", "its row", "Find the answer."), line
        assert [line.run_id for line in await store.runs(RunFilter(tool="search"), limit=5)] == [], line


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}


async def test_the_files_are_for_this_user_alone_also_where_others_could_read_them(tmp_path: Path) -> None:
    await asyncio.to_thread(tmp_path.chmod, 0o755)
    await asyncio.to_thread((tmp_path / FILE).touch, 0o644)
    async with RunStore.open(tmp_path) as store:
        await accept(store, 1)
        assert modes(tmp_path) == {tmp_path.name: 0o700, FILE: 0o600, f"{FILE}-wal": 0o600, f"{FILE}-shm": 0o600}


async def test_a_file_that_is_no_database_or_damaged_is_refused_and_not_overwritten(tmp_path: Path) -> None:
    async with RunStore.open(tmp_path) as store:
        await accept(store, *range(1, 50))
    content = (path := tmp_path / FILE).read_bytes()
    at = len(content) // 2 // PAGE * PAGE
    for damaged in (b"no database" * 1000, content[:at] + b"\xff" * 200 + content[at + 200 :]):
        path.write_bytes(damaged)
        with pytest.raises(Misconfigured, match=r"is damaged .*restore it from a backup, or move it away"):
            async with RunStore.open(tmp_path):
                pass
        assert path.read_bytes() == damaged


class Lease:
    error: Failure | None = None

    async def held(self) -> None:
        if self.error:
            raise self.error


async def test_an_agent_that_may_have_lost_its_bus_takes_nothing_new_and_goes_on_until_another_has_it(
    tmp_path: Path,
) -> None:
    lease, away, taken = (
        Lease(),
        TryAgain("the bus cannot be asked"),
        LeaseLost("another agent has taken this bus over"),
    )
    first, *others = whole_run(1)
    async with RunStore.open(tmp_path, lease.held) as store:
        for lease.error in (away, taken):
            with pytest.raises(TryAgain, match=str(lease.error)):
                await store.accept(first, DIGEST)
            assert await store.load(run_id(1)) is None
        lease.error = None
        await store.accept(first, DIGEST)
        for lease.error, commit in zip((None, away), others, strict=False):
            await store.commit(commit)
        lease.error = taken
        with pytest.raises(TryAgain, match=str(taken)):
            await store.commit(others[2])
        assert len(await store.entries(run_id(1))) == 3


async def test_a_run_is_never_told_less_than_before_nor_more_than_there_is(tmp_path: Path) -> None:
    async with RunStore.open(tmp_path) as store:
        await accept(store, 2)
        await stored(store, whole_run(1)[:3])
        assert await undispatched(store) == [(run_id(1), 0, 3), (run_id(2), 0, 1)]
        assert [named for named, _ in await store.undispatched(1)] == [run_id(1)]
        store.mark_dispatched(run_id(1), 2)
    for run, seq in ((1, 1), (1, 0), (1, 9), (7, 1)):
        async with RunStore.open(tmp_path) as again:
            again.mark_dispatched(run_id(run), seq)
        async with RunStore.open(tmp_path) as once_more:
            assert (await undispatched(once_more))[0] == (run_id(1), 2, 3), (run, seq)


TOOLS: Sequence[ToolOffer] = tuple(
    SEARCH.model_copy(update={"name": f"search-{number}", "description": f'Söker på nätet 🎉 "{number}". ' * 20})
    for number in range(9)
)


async def test_common_texts_are_stored_once_and_entries_and_states_are_read_to_the_letter(tmp_path: Path) -> None:
    runs = [[first := accepted(4), started(first)]]
    for number, tools in ((1, TOOLS), (2, TOOLS), (3, TOOLS[:4])):
        first = accepted(number)
        runs.append([first, after(first, RunStarted(at=first.entry.at + SECOND, skills=tuple(tools)))])
    async with RunStore.open(tmp_path) as store:
        for commits in runs:
            await stored(store, commits)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        ((texts, length),) = connection.execute("SELECT count(*), max(length(text)) FROM common_texts")
        ((longest,),) = connection.execute("SELECT max(length(event)) FROM journal WHERE run_id <> ?", (run_id(4),))
    assert (texts, longest < length / 3) == (2, True)
    async with RunStore.open(tmp_path) as store:
        for commits in runs:
            assert await store.entries(commits[0].run_id) == [commit.entry for commit in commits]
            assert await store.load(commits[0].run_id) == as_loaded(commits[-1])


async def test_a_run_that_was_found_damaged_while_it_was_read_is_left_alone(tmp_path: Path) -> None:
    async with RunStore.open(tmp_path) as store:
        await stored(store, whole_run(1))
        reading = asyncio.create_task(store.load(run_id(1)))
        await asyncio.sleep(0)
        store.quarantine(Damaged(run_id(1), "an entry"))
        with pytest.raises(Damaged):
            await reading
