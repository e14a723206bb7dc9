# ruff: noqa: S608 # names of our own tables
"""What becomes of runs that are kept no longer in the store of one agent, and what is left of them."""

import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.archive.retention import Ended, Over
from agent_service.core.brief import Parent
from agent_service.core.events import CancelRequested
from agent_service.core.waiting import FINAL, Status
from agent_service.errors import WakeConflict
from agent_service.run.journal import Commit
from agent_service.store.retention import OF_A_RUN
from agent_service.store.sql.database import FILE
from agent_service.store.sqlite import SqliteStore
from tests.kit.runs import NOON, accepted, after, run_id, started, wake_of, whole_run
from tests.ports.stores import as_loaded, stored

RULE = "agent.keep_runs.done_days: 1"
LATER = NOON + timedelta(days=2)
EVERYTHING = Over(statuses=FINAL, before=LATER, escalated_before=LATER)
RUN, ANOTHER = run_id(1), run_id(2)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(tmp_path) as store:
        yield store


async def done(store: SqliteStore, number: int, *, steps: int = 1) -> Commit:
    """A run that has ended, of which all is done."""
    last = await stored(store, whole_run(number, steps=steps))
    await settled(store, number, last.entry.seq)
    return last


async def settled(store: SqliteStore, number: int, seq: int) -> None:
    store.told(run_id(number), seq)
    store._write_told()
    await store._database.write(lambda _: None)


async def may_go(store: SqliteStore, over: Over = EVERYTHING) -> list[str]:
    return [run.run_id for run in await store.forgetting.ended(over, None, 100)]


async def forget(store: SqliteStore) -> list[str]:
    """All that may go."""
    ended = await store.forgetting.ended(EVERYTHING, None, 100)
    return [gone.run_id for gone in await store.forgetting.forget(ended, RULE, LATER)]


def rows_of(folder: Path, of_run: str) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection:
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table} WHERE run_id = ?", (of_run,)).fetchone()[0]
            for table in OF_A_RUN
        }
    return {table: count for table, count in counts.items() if count}


async def test_of_a_run_that_goes_nothing_is_left_but_its_tombstone(store: SqliteStore, tmp_path: Path) -> None:
    last, other = await done(store, 1), await stored(store, whole_run(2)[:4])
    assert await forget(store) == [RUN]
    tombstone = await store.tombstone(RUN)
    assert tombstone is not None
    assert tombstone.status is Status.DONE
    assert (tombstone.rule, tombstone.gone_at, tombstone.ended_at) == (RULE, LATER, last.entry.at)
    assert rows_of(tmp_path, RUN) == {}
    assert await store.load(RUN) is None
    assert [line.run_id for line in await store.runs(limit=5)] == [ANOTHER]
    assert {status: runs for status, runs in (await store.counts()).items() if runs} == {Status.RUNNING: 1}
    assert await store.load(ANOTHER) == as_loaded(other)
    assert await store.tombstone(ANOTHER) is None


async def test_a_wake_of_a_run_that_is_gone_names_it_still_and_begins_no_other(store: SqliteStore) -> None:
    await done(store, 1)
    await forget(store)
    again = accepted(3, wake_id="wake-1")
    assert await store.run_of("wake-1") == RUN
    assert await store.accept(wake_of(again), again) == RUN
    with pytest.raises(WakeConflict):
        await store.accept(replace(wake_of(again), digest="another"), again)
    assert await store.load(run_id(3)) is None


async def test_places_in_the_journal_of_all_runs_are_never_given_twice(store: SqliteStore) -> None:
    last = await done(store, 1)
    await forget(store)
    assert store.newest() == last.entry.seq
    await stored(store, [accepted(2)])
    assert [place.position for place in store.places(0, 10)] == [last.entry.seq + 1]


async def test_a_run_goes_only_when_it_has_ended_and_all_that_it_asked_for_is_done(store: SqliteStore) -> None:
    await stored(store, whole_run(1)[:5])
    await stored(store, whole_run(2))
    assert await may_go(store) == []
    await settled(store, 2, len(whole_run(2)))
    assert await may_go(store) == [ANOTHER]
    assert await may_go(store, replace(EVERYTHING, before=NOON)) == []
    assert await may_go(store, replace(EVERYTHING, statuses=frozenset({Status.FAILED}))) == []


async def test_a_run_that_has_moved_on_since_it_was_looked_at_stays(store: SqliteStore) -> None:
    last = await done(store, 1)
    seen = Ended(run_id=RUN, status=Status.DONE, version=last.entry.seq - 1, at=last.entry.at)
    assert await store.forgetting.forget([seen], RULE, LATER) == []
    assert await store.load(RUN) == as_loaded(last)


async def test_a_run_that_cannot_be_read_stays(store: SqliteStore, tmp_path: Path) -> None:
    await done(store, 1)
    await done(store, 2)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as hand:
        hand.execute("UPDATE runs SET state = '{' WHERE run_id = ?", (RUN,))
    assert await forget(store) == [ANOTHER]


async def test_a_child_stays_while_its_parent_may_need_what_it_brought(store: SqliteStore) -> None:
    begun = started(accepted(2, parent=Parent(run_id=RUN, step=1)))
    ended = after(begun, CancelRequested(at=begun.entry.at, reason="enough", by="ann"))
    await stored(store, [accepted(2, parent=Parent(run_id=RUN, step=1)), begun, ended])
    await settled(store, 2, ended.entry.seq)
    await stored(store, whole_run(1)[:-1])
    await settled(store, 1, len(whole_run(1)) - 1)
    assert await may_go(store) == []
    await store.commit(whole_run(1)[-1])
    await settled(store, 1, len(whole_run(1)))
    assert sorted(await may_go(store)) == [RUN, ANOTHER]


async def test_a_parent_stays_while_a_child_of_it_is_open(store: SqliteStore, tmp_path: Path) -> None:
    await done(store, 1)
    await stored(store, whole_run(2)[:4])
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as hand:
        child = json.dumps({"run_id": ANOTHER, "step": 1})
        hand.execute("INSERT INTO items (run_id, field, item) VALUES (?, 'children', ?)", (RUN, child))
    assert await may_go(store) == []
    for commit in whole_run(2)[4:]:
        await store.commit(commit)
    await settled(store, 2, len(whole_run(2)))
    assert await may_go(store) == [RUN, ANOTHER]


async def test_what_is_to_be_removed_elsewhere_is_known_until_it_is(store: SqliteStore) -> None:
    await done(store, 1)
    await forget(store)
    left = await store.forgetting.behind(10)
    assert [(one.run_id, one.folder) for one in left] == [(RUN, True)]
    await store.forgetting.cleared(left)
    assert await store.forgetting.behind(10) == []
