"""Retention of ended runs, and of those that wait for a person, in a store that keeps its rows."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agent_service.archive.pruning import Pruner, delete_runs, expired_runs, leftovers, mark_cleared
from agent_service.archive.retention import EndedRun, KeepRunsSettings, Tombstone
from agent_service.core.brief import Parent
from agent_service.core.events import CancelRequested, ToolReturned
from agent_service.core.waiting import FINAL, Status
from agent_service.errors import WakeConflict
from agent_service.run.journal import Commit
from agent_service.run.ports import Dismissal
from agent_service.store.database import FILE, RUN_TABLES
from agent_service.store.messages import LEVEL, TombstoneRecord
from agent_service.store.runs import RunStore
from agent_service.store.shared import SharedStore
from agent_service.views.workspace.files import Workspace
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.events import ToolOutput, ToolResult
from tests.kit.fakes import FakeClock, MemoryArtifacts
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.runs import DIGEST, NOON, SECOND, accepted, after, run_id, started, stopped, whole_run
from tests.kit.waiting import until
from tests.ports.stores import as_loaded, stored, undispatched

# ruff: noqa: S608 # names of our own tables


Store = RunStore | SharedStore

RULE = "agent.keep_runs.done_days: 1"
A_DAY_EACH = KeepRunsSettings(done_days=1)
LATER = NOON + timedelta(days=2)
EVERYTHING: dict[str, Any] = {"statuses": FINAL, "before": LATER, "escalated_before": LATER}
RUN, ANOTHER = run_id(1), run_id(2)


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[RunStore]:
    async with RunStore.open(tmp_path) as store:
        yield store


@pytest.fixture(params=["sqlite", "shared"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with RunStore.open(tmp_path) if request.param == "sqlite" else joined(MemoryLog(), tmp_path) as opened:
        yield opened.store if isinstance(opened, Member) else opened


async def done(store: Store, *numbers: int) -> Commit:
    """Runs that have ended, of which all is done; the last commit."""
    for number in numbers:
        last = await stored(store, whole_run(number))
        await settled(store, number, last.entry.seq)
    return last


async def settled(store: Store, number: int, seq: int) -> None:
    store.mark_dispatched(run_id(number), seq)
    await until(lambda: undispatched(store), lambda runs: all(of != run_id(number) or to >= seq for of, to, _ in runs))
    await store.caught_up()


async def may_go(store: Store, **over: Any) -> list[str]:
    return [run.run_id async for some in expired_runs(store, **EVERYTHING | over) for run in some]


async def forget(store: Store) -> list[str]:
    return await deleted(store, artifacts_only=False)


async def deleted(store: Store, *, artifacts_only: bool) -> list[str]:
    ended = [run async for some in expired_runs(store, **EVERYTHING) for run in some]
    return sorted(await delete_runs(store, ended, RULE, LATER, artifacts_only=artifacts_only))


async def running(store: Store) -> dict[Status, int]:
    return {status: runs for status, runs in (await store.counts()).items() if runs}


async def test_of_a_run_that_goes_nothing_is_left_but_its_tombstone_and_its_wake_begins_no_other(store: Store) -> None:
    last, other = await done(store, 1), await stored(store, whole_run(2)[:4])
    assert await forget(store) == [RUN]
    stone = await store.tombstone(RUN)
    assert stone is not None
    assert (stone.status, stone.rule, stone.gone_at, stone.ended_at) == (Status.DONE, RULE, LATER, last.entry.at)
    assert (await store.load(RUN), await store.tombstone(ANOTHER)) == (None, None)
    assert [line.run_id for line in await store.runs(limit=5)] == [ANOTHER]
    assert await running(store) == {Status.RUNNING: 1}
    assert await store.load(ANOTHER) == as_loaded(other)
    assert await forget(store) == []
    again = accepted(3, wake_id="wake-1")
    assert await store.run_by_wake("wake-1") == RUN
    assert await store.accept(again, DIGEST) == RUN
    with pytest.raises(WakeConflict):
        await store.accept(again, "another")
    assert await store.load(run_id(3)) is None


async def test_no_table_has_a_row_of_a_run_that_is_gone_and_no_place_in_the_journal_of_all_is_given_twice(
    alone: RunStore, tmp_path: Path
) -> None:
    last = await done(alone, 1)
    await forget(alone)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        left = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in RUN_TABLES}
    assert left == dict.fromkeys(RUN_TABLES, 0)
    assert alone.newest() == last.entry.seq
    await stored(alone, [accepted(2)])
    assert [place.position for place in await alone.places(0, 10)] == [last.entry.seq + 1]


async def test_a_run_goes_only_when_it_has_ended_and_all_that_it_asked_for_is_done_and_it_can_be_read(
    alone: RunStore, tmp_path: Path
) -> None:
    await stored(alone, whole_run(1)[:5])
    await stored(alone, whole_run(2))
    assert await may_go(alone) == []
    await settled(alone, 2, len(whole_run(2)))
    assert await may_go(alone) == [ANOTHER]
    assert await may_go(alone, before=NOON) == []
    assert await may_go(alone, statuses=[Status.FAILED]) == []
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as hand:
        hand.execute("UPDATE runs SET state = '{' WHERE run_id = ?", (ANOTHER,))
    assert await forget(alone) == []


async def test_a_child_and_its_parent_stay_while_one_of_them_is_open(store: Store) -> None:
    child = accepted(2, parent=Parent(run_id=RUN, step=1))
    begun = await stored(store, [child, started(child)])
    *parent, last = whole_run(1)
    await stored(store, parent)
    await settled(store, 1, len(parent))
    enough = CancelRequested(at=begun.entry.at, reason="enough", by="ann")
    for commit, number, may in (
        (after(begun, enough), 2, []),
        (last, 1, [RUN, ANOTHER]),
    ):
        await store.commit(commit)
        await settled(store, number, commit.entry.seq)
        assert sorted(await may_go(store)) == may
    other = accepted(4, parent=Parent(run_id=RUN, step=1))
    await stored(store, [other, started(other)])
    assert await may_go(store) == [ANOTHER]


async def test_what_is_to_be_removed_elsewhere_is_known_until_it_is(store: Store) -> None:
    await done(store, 1)
    for artifacts_alone in (True, False):
        await deleted(store, artifacts_only=artifacts_alone)
        if artifacts_alone:
            told = await store.artifacts_gone(RUN)
            assert told
            assert (told.rule, told.gone_at) == (RULE, LATER)
        left = await leftovers(store, 10)
        assert [(one.run_id, one.folder) for one in left] == [(RUN, not artifacts_alone)]
        await mark_cleared(store, left)
        assert await leftovers(store, 10) == []


async def pruned(member: Member, rules: KeepRunsSettings) -> int:
    with TemporaryDirectory() as folder:
        pruner = Pruner(member.store, Workspace(Path(folder)), MemoryArtifacts(), rules, 0.0, FakeClock(LATER))
        passed = await pruner.prune(rest=0)
    return sum(passed.runs.values())


def about(log: MemoryLog) -> list[str]:
    named = subjects.stored_run("wake-1", RUN), subjects.stored_beside("seen", RUN)
    return [fact.subject for fact in log.facts if fact.subject in named]


async def test_a_run_that_ended_long_ago_is_gone_for_all_members_and_for_one_that_comes_later(
    a: Member, b: Member, log: MemoryLog, tmp_path: Path
) -> None:
    await done(a.store, 1)
    going_on = await stored(a.store, whole_run(2)[:4])
    assert await pruned(a, A_DAY_EACH) == 1
    await b.store.caught_up()
    assert about(log) == []
    assert [one.run_id for one in await leftovers(b.store, 9)] == [RUN]
    await pruned(b, KeepRunsSettings())
    assert await leftovers(b.store, 9) == []
    async with joined(log, tmp_path) as c:
        for store in (a.store, b.store, c.store):
            stone = await store.tombstone(RUN)
            assert stone is not None
            assert (stone.status, stone.rule) == (Status.DONE, RULE)
            assert (await store.load(RUN), await store.run_by_wake("wake-1")) == (None, RUN)
            assert await store.load(ANOTHER) == as_loaded(going_on)
            assert await running(store) == {Status.RUNNING: 1}
    assert await pruned(a, A_DAY_EACH) == 0


async def test_a_run_that_has_moved_on_before_it_goes_or_is_told_gone_stays(a: Member, log: MemoryLog) -> None:
    last = await done(a.store, 1)
    seen = EndedRun(run_id=RUN, status=Status.DONE, version=last.entry.seq - 1, at=last.entry.at)
    assert await delete_runs(a.store, [seen], RULE, LATER) == set()
    at: dict[str, Any] = {"last": 0, "ended_at": NOON, "gone_at": NOON, "rule": RULE}
    stone = Tombstone(run_id=RUN, wake_id="wake-1", wake_digest="digest", status=Status.DONE, **at)
    gone = TombstoneRecord(v=LEVEL, version=last.entry.seq - 1, stone=stone)
    await log.append(gone.subject, b"", after=0, headers=gone.header)
    await pruned(a, KeepRunsSettings())
    assert await a.store.load(RUN) == as_loaded(last)


async def test_what_is_left_of_runs_that_are_gone_is_removed_by_the_next_keeper(
    a: Member, b: Member, log: MemoryLog
) -> None:
    last = await done(a.store, 1)
    a.wire.next.append("lost")
    with pytest.raises(TryAgain):
        await pruned(a, A_DAY_EACH)
    await b.store.caught_up()
    assert len(about(log)) == last.entry.seq
    await pruned(b, A_DAY_EACH)
    assert about(log) == []


async def test_a_copy_made_while_the_log_is_cleared_has_nothing_of_what_is_gone(
    a: Member, log: MemoryLog, tmp_path: Path
) -> None:
    """The rest of a deleted run may be a part of its entries."""
    await done(a.store, 1)
    before = list(log.facts)
    await pruned(a, A_DAY_EACH)
    (said,) = (fact for fact in log.facts if fact.subject == subjects.stored_beside("gone", RUN))
    for left in (before[:1], before[:-2], before):
        log.facts = [*left, said]
        async with joined(log, tmp_path) as c:
            assert (await c.store.load(RUN), await c.store.runs(limit=9)) == (None, [])
            assert await c.store.tombstone(RUN) == await a.store.tombstone(RUN)


def dismissal(number: int, version: int = 3, *, by: str = "token ops") -> Dismissal:
    return Dismissal(run_id=run_id(number), version=version, by=by, at=NOON + timedelta(hours=1))


async def waiting(store: Store, limit: int = 10) -> list[str]:
    return [run for run, _ in await store.for_people(limit)]


async def test_paused_and_escalated_runs_wait_newest_first_until_they_are_dismissed(store: Store) -> None:
    for number, remedy in ((3, "escalate"), (1, "pause"), (2, "escalate"), (5, "fail")):
        await stored(store, stopped(number, remedy))
    await stored(store, whole_run(4))
    assert await waiting(store) == [run_id(3), run_id(2), run_id(1)]
    assert await waiting(store, limit=2) == [run_id(3), run_id(2)]
    assert await store.dismissal(RUN) is None
    for by in ("token ops", "token other"):
        assert await store.dismiss(dismissal(1, by=by)) == dismissal(1), "the first stays on record"
    assert await store.dismissal(RUN) == dismissal(1)
    assert (await waiting(store), await store.count_for_people()) == ([run_id(3), run_id(2)], 2)


async def test_what_comes_for_a_dismissed_run_brings_it_back(store: Store) -> None:
    commits = list(whole_run(1)[:4])
    result = ToolResult(
        run_id=RUN, step=7, tool="search", status="ok", result=ToolOutput(), completed_at=NOON, attempt=1
    )
    commits.append(after(commits[-1], ToolReturned(at=NOON + 9 * SECOND, result=result)))
    await stored(store, commits)
    await store.dismiss(dismissal(1, version=5))
    assert await waiting(store) == []
    late = ToolReturned(at=NOON + 10 * SECOND, result=result.model_copy(update={"step": 1}))
    await store.commit(after(commits[-1], late))
    await store.caught_up()
    assert await waiting(store) == [RUN]
    again = dismissal(1, version=6, by="token other")
    assert await store.dismiss(again) == again
