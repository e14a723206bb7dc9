"""How long a shared store keeps runs that have ended."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.core.waiting import Status
from agent_service.journal import Commit
from agent_service.store.facts import VERSION, GoneFact
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.runs import NOON, accepted, run_id, wake_of, whole_run
from tests.ports.stores import as_loaded, stored

DAY = timedelta(days=1)
A_DAY_EACH = {Status.DONE: DAY}
LATER = NOON + 2 * DAY
RUN, OTHER = run_id(1), run_id(2)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
async def a(log: MemoryLog, tmp_path: Path) -> AsyncIterator[Member]:
    async with joined(log, tmp_path, "a", live={"a", "b"}) as member:
        yield member


@pytest.fixture
async def b(log: MemoryLog, tmp_path: Path) -> AsyncIterator[Member]:
    async with joined(log, tmp_path, "b", live={"a", "b"}) as member:
        yield member


async def done(member: Member, number: int = 1) -> Commit:
    """A run that has ended, of which all is done."""
    last = await stored(member.store, whole_run(number))
    member.store.told(run_id(number), last.entry.seq)
    await member.store.tell()
    await member.copy.caught_up()
    return last


def about(log: MemoryLog, of_run: str, wake_id: str) -> list[str]:
    named = subjects.stored_run(of_run), subjects.stored_wake(wake_id), subjects.stored_seen(of_run)
    return [fact.subject for fact in log.facts if fact.subject in named]


async def test_a_run_that_ended_long_ago_is_gone_everywhere_and_the_others_are_there(
    a: Member, b: Member, log: MemoryLog, tmp_path: Path
) -> None:
    await done(a)
    running = await stored(a.store, whole_run(2)[:4])
    assert await a.store.keeping.forget(A_DAY_EACH, LATER) == 1
    await b.copy.caught_up()
    assert about(log, RUN, "wake-1") == []
    async with joined(log, tmp_path, "c") as c:
        for store in (a.store, b.store, c.store):
            assert await store.load(RUN) is None
            assert await store.run_of("wake-1") is None
            assert await store.load(OTHER) == as_loaded(running)
            assert {status: runs for status, runs in (await store.counts()).items() if runs} == {Status.RUNNING: 1}
    assert await a.store.keeping.forget(A_DAY_EACH, LATER) == 0


@pytest.mark.parametrize("rules", [{}, {Status.FAILED: DAY}, {Status.DONE: 3 * DAY}], ids=str)
async def test_a_run_is_kept_where_no_rule_says_that_its_time_is_over(
    a: Member, rules: dict[Status, timedelta]
) -> None:
    last = await done(a)
    assert await a.store.keeping.forget(rules, LATER) == 0
    assert await a.store.load(RUN) == as_loaded(last)


async def test_a_run_is_kept_until_all_is_done_that_it_asks_for(a: Member) -> None:
    await stored(a.store, whole_run(1))
    assert await a.store.keeping.forget(A_DAY_EACH, LATER) == 0


async def test_a_run_that_has_moved_on_meanwhile_stays(a: Member, log: MemoryLog) -> None:
    last = await done(a)
    gone = GoneFact(v=VERSION, by="b", runs={RUN: (last.entry.seq - 1, "wake-1")})
    log.store(subjects.STORED_GONE, gone.encoded(), after=0)
    await a.store.keeping.forget({}, LATER)
    assert await a.store.load(RUN) == as_loaded(last)


async def test_what_is_left_of_runs_that_are_gone_is_removed_by_the_next_keeper(
    a: Member, b: Member, log: MemoryLog
) -> None:
    last = await done(a)
    a.wire.next.append("lost")
    with pytest.raises(TryAgain):
        await a.store.keeping.forget(A_DAY_EACH, LATER)
    await b.copy.caught_up()
    assert len(about(log, RUN, "wake-1")) == last.entry.seq
    await b.store.keeping.forget(A_DAY_EACH, LATER)
    assert about(log, RUN, "wake-1") == []


async def test_a_wake_whose_run_is_gone_can_be_used_again_and_stays_then(a: Member) -> None:
    await done(a)
    await a.store.keeping.forget(A_DAY_EACH, LATER)
    again = accepted(3, wake_id="wake-1")
    assert await a.store.accept(wake_of(again), again) == run_id(3)
    await a.store.keeping.forget(A_DAY_EACH, LATER)
    assert await a.store.load(run_id(3)) == as_loaded(again)


async def test_what_was_told_of_runs_that_are_gone_takes_no_room(a: Member, log: MemoryLog) -> None:
    await done(a)
    await stored(a.store, whole_run(2)[:2])
    assert [fact.subject for fact in log.facts].count(subjects.STORED_TOLD) == 1
    await a.store.keeping.forget(A_DAY_EACH, LATER)
    assert [fact.subject for fact in log.facts].count(subjects.STORED_TOLD) == 0
