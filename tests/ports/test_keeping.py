"""How long a shared store keeps runs that have ended."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from agent_service.archive.dependents import RunBelongings
from agent_service.archive.pruning import Pruning
from agent_service.archive.retention import Ended, Rules
from agent_service.core.waiting import Status
from agent_service.run.journal import Commit
from agent_service.store.shared_log.facts import VERSION, GoneFact
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.kit.fakes import FakeClock, MemoryArtifacts
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.runs import NOON, run_id, whole_run
from tests.ports.stores import as_loaded, stored

DAY = timedelta(days=1)
RULE = "agent.keep_runs.done_days: 1"
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


@pytest.fixture(autouse=True)
def folders_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def done(member: Member, number: int = 1) -> Commit:
    """A run that has ended, of which all is done."""
    last = await stored(member.store, whole_run(number))
    member.store.told(run_id(number), last.entry.seq)
    await member.store.tell()
    await member.copy.caught_up()
    return last


async def forget(member: Member, rules: Mapping[Status, timedelta], now: datetime) -> int:
    """What a pass of that member has go."""
    belongings = RunBelongings(Path("workspaces"), MemoryArtifacts())
    pruned = await Pruning(member.store.forgetting, belongings, Rules(days=rules), FakeClock(now)).prune(rest=0)
    return sum(pruned.runs.values())


def about(log: MemoryLog, of_run: str, wake_id: str) -> list[str]:
    named = subjects.stored_run(of_run), subjects.stored_wake(wake_id), subjects.stored_seen(of_run)
    return [fact.subject for fact in log.facts if fact.subject in named]


async def test_a_run_that_ended_long_ago_is_gone_everywhere_and_the_others_are_there(
    a: Member, b: Member, log: MemoryLog, tmp_path: Path
) -> None:
    await done(a)
    running = await stored(a.store, whole_run(2)[:4])
    assert await forget(a, A_DAY_EACH, LATER) == 1
    await b.copy.caught_up()
    assert about(log, RUN, "wake-1") == []
    async with joined(log, tmp_path, "c") as c:
        for store in (a.store, b.store, c.store):
            assert await store.load(RUN) is None
            tombstone = await store.tombstone(RUN)
            assert tombstone is not None
            assert (tombstone.status, tombstone.rule) == (Status.DONE, RULE)
            assert await store.run_of("wake-1") == RUN
            assert await store.load(OTHER) == as_loaded(running)
            assert {status: runs for status, runs in (await store.counts()).items() if runs} == {Status.RUNNING: 1}
    assert await forget(a, A_DAY_EACH, LATER) == 0


async def test_a_run_that_has_moved_on_meanwhile_stays(a: Member, log: MemoryLog) -> None:
    last = await done(a)
    gone = GoneFact(v=VERSION, by="b", runs={RUN: (last.entry.seq - 1, "wake-1")})
    log.store(subjects.STORED_GONE, gone.encoded(), after=0)
    await forget(a, {}, LATER)
    assert await a.store.load(RUN) == as_loaded(last)


async def test_what_is_left_of_runs_that_are_gone_is_removed_by_the_next_keeper(
    a: Member, b: Member, log: MemoryLog
) -> None:
    last = await done(a)
    a.wire.next.append("lost")
    with pytest.raises(TryAgain):
        await forget(a, A_DAY_EACH, LATER)
    await b.copy.caught_up()
    assert len(about(log, RUN, "wake-1")) == last.entry.seq
    await forget(b, A_DAY_EACH, LATER)
    assert about(log, RUN, "wake-1") == []


async def test_a_copy_made_while_the_log_is_cleared_has_nothing_of_what_is_gone(
    a: Member, log: MemoryLog, tmp_path: Path
) -> None:
    """What is there of it still may be its first entry, or all but that."""
    await done(a)
    before = list(log.facts)
    await forget(a, A_DAY_EACH, LATER)
    (said,) = (fact for fact in log.facts if fact.subject == subjects.STORED_GONE)
    wake = subjects.stored_wake("wake-1")
    for left in ([fact for fact in before if fact.subject == wake], before[:-2], before):
        log.facts = [*left, said]
        async with joined(log, tmp_path, "c") as c:
            assert (await c.store.load(RUN), await c.store.runs(limit=9)) == (None, [])
            assert await c.store.tombstone(RUN) == await a.store.tombstone(RUN)


async def test_artifacts_that_went_before_their_run_are_known_to_all(a: Member, b: Member) -> None:
    last = await done(a)
    run = Ended(run_id=RUN, status=Status.DONE, version=last.entry.seq, at=last.entry.at)
    gone = await a.store.forgetting.forget_artifacts([run], RULE, LATER)
    assert [(one.run_id, one.folder) for one in gone] == [(RUN, False)]
    await b.copy.caught_up()
    for member in (a, b):
        told = await member.store.artifacts_gone(RUN)
        assert told is not None
        assert (told.rule, told.gone_at) == (RULE, LATER)
        assert [one.run_id for one in await member.store.forgetting.behind(9)] == [RUN]


async def test_each_member_removes_what_it_has_of_a_run_that_another_had_go(a: Member, b: Member) -> None:
    await done(a)
    await forget(a, A_DAY_EACH, LATER)
    await b.copy.caught_up()
    assert [one.run_id for one in await b.store.forgetting.behind(9)] == [RUN]
    await forget(b, {}, LATER)
    assert await b.store.forgetting.behind(9) == []


async def test_what_was_told_of_runs_that_are_gone_takes_no_room(a: Member, log: MemoryLog) -> None:
    await done(a)
    await stored(a.store, whole_run(2)[:2])
    assert [fact.subject for fact in log.facts].count(subjects.STORED_TOLD) == 1
    await forget(a, A_DAY_EACH, LATER)
    assert [fact.subject for fact in log.facts].count(subjects.STORED_TOLD) == 0
