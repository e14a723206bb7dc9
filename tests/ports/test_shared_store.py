"""What only a store that several processes share can get wrong."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.core.events import CallReserved, CancelRequested, SignalReceived
from agent_service.core.waiting import Reserve
from agent_service.errors import Damaged, Newer, VersionMoved, WakeConflict
from agent_service.journal import Commit
from agent_service.ports import Dismissal
from agent_service.store.facts import VERSION, EntryFact
from agent_service.store.rows import rows_of
from groundwork.nats.lease import Taken
from groundwork.service.errors import NoRoom, TryAgain
from schemas import subjects
from schemas.events import Signal
from schemas.halt import Halt
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.runs import NOON, accepted, after, run_id, wake_of, whole_run
from tests.ports.stores import as_loaded, stored

HOUR = timedelta(hours=1)
RUN = run_id(1)
LIVE = {"a", "b"}


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
async def a(log: MemoryLog, tmp_path: Path) -> AsyncIterator[Member]:
    async with joined(log, tmp_path, "a", live=LIVE) as member:
        yield member


@pytest.fixture
async def b(log: MemoryLog, tmp_path: Path) -> AsyncIterator[Member]:
    async with joined(log, tmp_path, "b", live=LIVE) as member:
        yield member


def cancelled(commit: Commit, by: str) -> Commit:
    return after(commit, CancelRequested(at=NOON + HOUR / 2, reason=f"said {by}"))


def noted(commit: Commit, by: str) -> Commit:
    """A word of a person, after which the run goes on."""
    said = Signal(run_id=commit.state.run_id, signal_id=f"of-{by}", kind="message", message=f"said {by}")
    return after(commit, SignalReceived(at=NOON + HOUR / 2, signal=said))


async def test_of_two_members_that_decide_on_one_version_one_wins(a: Member, b: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    rivals = cancelled(begun, "a"), cancelled(begun, "b")
    answers = await asyncio.gather(a.store.commit(rivals[0]), b.store.commit(rivals[1]), return_exceptions=True)
    winners = [rival for rival, answer in zip(rivals, answers, strict=True) if answer is None]
    assert sum(isinstance(answer, VersionMoved) for answer in answers) == 1
    assert [await member.store.load(RUN) for member in (a, b)] == [as_loaded(winners[0])] * 2


async def test_of_two_members_that_take_one_wake_both_name_one_run(a: Member, b: Member) -> None:
    first, second = accepted(1, wake_id="w"), accepted(2, wake_id="w")
    ids = await asyncio.gather(a.store.accept(wake_of(first), first), b.store.accept(wake_of(second), second))
    assert len(set(ids)) == 1
    with pytest.raises(WakeConflict):
        await b.store.accept(wake_of(second, digest="another"), second)


async def test_what_is_decided_stands_on_the_newest_entry_though_the_copy_is_behind(a: Member, b: Member) -> None:
    commits = whole_run(1)
    await stored(a.store, commits[:2])
    await b.copy.caught_up()
    b.copy.open.clear()
    await a.store.commit(commits[2])
    loading = asyncio.create_task(b.store.load(RUN))
    with pytest.raises(VersionMoved):
        await asyncio.gather(b.store.commit(cancelled(commits[1], "b")), _opened_soon(b))
    assert await loading == as_loaded(commits[2])


async def _opened_soon(member: Member) -> None:
    member.copy.open.set()


async def test_a_run_that_another_member_has_just_accepted_is_found(a: Member, b: Member) -> None:
    b.copy.open.clear()
    await stored(a.store, [accepted(1)])
    run, named, _ = await asyncio.gather(b.store.load(RUN), b.store.run_of("wake-1"), _opened_soon(b))
    assert (run, named) == (as_loaded(accepted(1)), RUN)


async def test_whether_a_remembered_state_is_current_is_known_by_the_log(a: Member, b: Member) -> None:
    commits = whole_run(1)
    await stored(a.store, commits[:2])
    assert await b.store.is_current(RUN, 2)
    await a.store.commit(commits[2])
    assert not await b.store.is_current(RUN, 2)
    assert await b.store.is_current(RUN, 3)


async def test_a_commit_whose_acknowledgement_was_lost_has_won_once_the_copy_has_it(a: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    a.wire.next.append("lost")
    rival = cancelled(begun, "a")
    a.copy.open.clear()
    with pytest.raises(TryAgain):
        await a.store.commit(rival)
    a.copy.open.set()
    assert await a.store.load(RUN) == as_loaded(rival)
    assert [(told.by, told.entry) for told in a.heard] == [("a", rival.entry)]


async def test_a_commit_that_others_have_followed_on_has_won_though_its_place_is_taken(
    a: Member, b: Member, log: MemoryLog
) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    ours = noted(begun, "a")
    fact = EntryFact.of(rows_of(ours), by="a")
    log.store(fact.subject, fact.encoded(), after=log.position_of(fact.subject))  # its answer never came
    await b.store.load(RUN)
    await b.store.commit(noted(ours, "b"))
    await a.store.load(RUN)
    assert await a.store.is_current(RUN, 4)
    assert [told.by for told in a.heard] == ["a", "b"]


async def test_a_commit_that_arrives_late_is_heard_of_by_who_gave_it_up(a: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    ghost = noted(begun, "a")
    a.wire.next.append("late")
    with pytest.raises(TryAgain):
        await a.store.commit(ghost)
    assert await a.store.is_current(RUN, 2)
    await a.wire.arrive()
    assert await a.store.load(RUN) == as_loaded(ghost)
    assert [told.entry for told in a.heard] == [ghost.entry]
    assert [run.seqs for run in await a.store.untold(10)] == [(1, 2, 3)]


async def test_a_commit_that_arrives_after_another_changes_nothing(a: Member, b: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    a.wire.next.append("late")
    with pytest.raises(TryAgain):
        await a.store.commit(noted(begun, "a"))
    await b.store.load(RUN)
    other = noted(begun, "b")
    await b.store.commit(other)
    await a.wire.arrive()
    assert [await member.store.load(RUN) for member in (a, b)] == [as_loaded(other)] * 2


async def test_a_wake_whose_acknowledgement_was_lost_is_found_by_the_next_try(a: Member) -> None:
    wake, again = accepted(1, wake_id="w"), accepted(2, wake_id="w")
    a.wire.next.append("lost")
    a.copy.open.clear()
    with pytest.raises(TryAgain):
        await a.store.accept(wake_of(wake), wake)
    a.copy.open.set()
    assert await a.store.accept(wake_of(again), again) == RUN


async def test_nothing_is_stored_in_a_log_that_is_full_and_it_goes_on_once_there_is_room(a: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    a.wire.next.append("full")
    with pytest.raises(NoRoom):
        await a.store.commit(noted(begun, "a"))
    await a.store.commit(noted(begun, "a"))
    assert await a.store.is_current(RUN, 3)
    assert a.heard == []


async def test_who_was_taken_for_dead_stores_nothing(a: Member, log: MemoryLog) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    before = len(log.facts)
    a.lease.error = Taken("another member has what was yours")
    with pytest.raises(TryAgain, match="another member"):
        await a.store.commit(noted(begun, "a"))
    with pytest.raises(TryAgain, match="another member"):
        await a.store.accept(wake_of(accepted(2)), accepted(2))
    assert len(log.facts) == before


async def test_everybody_hears_of_what_others_commit_and_not_of_what_was_there(
    a: Member, log: MemoryLog, tmp_path: Path
) -> None:
    commits = whole_run(1)
    await stored(a.store, commits[:3])
    async with joined(log, tmp_path, "b", live=LIVE) as b:
        await a.store.commit(commits[3])
        await b.copy.caught_up()
        assert [(told.by, told.entry, told.paid_usd) for told in b.heard] == [("a", commits[3].entry, 0.01)]
        assert a.heard == []


async def test_entries_are_told_one_by_one_and_only_by_who_sees_to_them(a: Member, b: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    await b.store.load(RUN)
    await b.store.commit(third := noted(begun, "b"))
    await a.store.load(RUN)
    a.store.told(RUN, 3)
    await a.store.commit(noted(third, "a"))
    await b.copy.caught_up()
    assert [run.seqs for run in await a.store.untold(10)] == [(4,)]
    assert [run.seqs for run in await b.store.untold(10)] == [(3,)]
    a.store.told(RUN, 4, since=4)
    await a.store.tell()
    b.members.live = frozenset({"b"})
    await b.copy.caught_up()
    assert [run.seqs for run in await b.store.untold(10)] == [(3,)]
    b.store.told(RUN, 3, since=3)
    await b.store.tell()
    assert await b.store.untold(10) == []


async def test_what_is_done_is_not_left_to_be_done_though_nobody_was_told_yet(a: Member) -> None:
    await stored(a.store, whole_run(1)[:2])
    a.store.told(RUN, 1)
    assert [run.seqs for run in await a.store.untold(10)] == [(2,)]
    a.copy.open.clear()
    await a.store.tell()
    assert [run.seqs for run in await a.store.untold(10)] == [(2,)]


async def test_a_commit_is_done_once_the_copy_has_it_though_no_answer_comes(a: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    a.wire.next.append("silent")
    await a.store.commit(noted(begun, "a"))
    assert await a.store.is_current(RUN, 3)
    assert a.heard == []


async def test_what_a_member_left_is_its_heirs_and_before_that_nobody_elses(a: Member, b: Member) -> None:
    await stored(b.store, [accepted(1)])
    await stored(b.store, whole_run(2)[:4])
    b.store.told(run_id(2), 1)
    await b.store.tell()
    await a.copy.caught_up()
    late = NOON + 100 * HOUR
    assert [await a.store.queued(9), await a.store.due(late, 9), await a.store.untold(9)] == [[], [], []]
    assert not await a.store.sees_to(RUN, 1)
    a.members.live = frozenset({"a"})
    assert [await a.store.queued(9), await a.store.due(late, 9)] == [[RUN], [run_id(2), RUN]]
    assert [(run.run_id, run.seqs) for run in await a.store.untold(9)] == [(RUN, (1,)), (run_id(2), (2, 3, 4))]
    assert await a.store.ours([RUN, run_id(2), run_id(3)]) == [RUN, run_id(2)]
    assert await a.store.sees_to(RUN, 1)


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"v":0,"by":"x"}', b"[" * 100_000], ids=str)
async def test_a_fact_that_no_agent_wrote_sets_its_run_aside_and_no_other(
    a: Member, log: MemoryLog, tmp_path: Path, body: bytes
) -> None:
    commits = {number: whole_run(number) for number in (1, 2)}
    for run in commits.values():
        await stored(a.store, run[:2])
    log.store(subjects.stored_run(RUN), body, after=None)
    with pytest.raises(Damaged, match="log of all runs"):
        await a.store.load(RUN)
    with pytest.raises(Damaged):
        await a.store.commit(commits[1][2])
    await a.store.commit(commits[2][2])
    async with joined(log, tmp_path, "b") as b:
        assert await b.store.load(run_id(2)) == as_loaded(commits[2][2])
        with pytest.raises(Damaged):
            await b.store.load(RUN)


async def test_an_entry_that_does_not_continue_its_run_sets_it_aside(a: Member, log: MemoryLog) -> None:
    commits = whole_run(1)
    await stored(a.store, commits[:2])
    fact = EntryFact.of(rows_of(commits[3]), by="a")
    log.store(fact.subject, fact.encoded(), after=None)
    with pytest.raises(Damaged, match="does not continue entry 2"):
        await a.store.load(RUN)


@pytest.mark.parametrize("of", ["shape", "rules"])
async def test_a_run_that_a_newer_version_moved_on_is_left_to_its_like(
    a: Member, log: MemoryLog, tmp_path: Path, of: str
) -> None:
    commits = whole_run(1)
    await stored(a.store, commits[:2])
    fact = EntryFact.of(rows_of(commits[2]), by="newer")
    changed = {"v": VERSION + 1} if of == "shape" else {"effects_digest": f"{'0' * 16}ff"}
    newer = fact.model_copy(update=changed)
    log.store(newer.subject, newer.encoded(), after=log.position_of(newer.subject))
    a.members.live = frozenset({"a"})
    with pytest.raises(Newer, match="Upgrade this one"):
        await a.store.load(RUN)
    with pytest.raises(Newer):
        await a.store.is_current(RUN, 2)
    with pytest.raises(VersionMoved):
        await a.store.commit(commits[2])
    assert await a.store.due(NOON + 100 * HOUR, 9) == []
    async with joined(log, tmp_path, "b") as b:
        with pytest.raises(Newer):
            await b.store.load(RUN)


async def test_a_wake_that_a_newer_version_took_is_not_taken_again(a: Member, log: MemoryLog) -> None:
    wake = accepted(1)
    asked = wake.state.wake_id, "digest", 0
    fact = EntryFact.of(rows_of(wake), by="newer", asked=asked).model_copy(update={"v": VERSION + 1})
    log.store(fact.subject, fact.encoded(), after=0)
    with pytest.raises(TryAgain, match="newer version"):
        await a.store.accept(wake_of(wake), wake)


async def test_a_stop_is_everybodys_and_who_comes_late_with_another_word_looks_again(a: Member, b: Member) -> None:
    stop = Halt(number=1, since=NOON, by="ops", reason="drill")
    await a.store.halts.keep(stop)
    await b.copy.caught_up()
    assert await b.store.halts.newest() == stop
    assert (a.halts, b.halts) == ([], [stop])
    with pytest.raises(TryAgain, match="look again"):
        await b.store.halts.keep(Halt(number=1, since=NOON, by="somebody else", reason="other"))
    over = stop.model_copy(update={"until": NOON + HOUR, "until_by": "ops"})
    await b.store.halts.keep(over)
    with pytest.raises(TryAgain, match="look again"):
        await a.store.halts.keep(stop)
    await a.copy.caught_up()
    assert await a.store.halts.newest() == over


async def test_who_dismissed_a_run_first_stays_on_record_for_all(a: Member, b: Member) -> None:
    await stored(a.store, whole_run(1)[:2])
    await b.copy.caught_up()
    first, second = (Dismissal(run_id=RUN, version=2, by=by, at=NOON) for by in ("ann", "bob"))
    assert await a.store.inbox.dismiss(first) == first
    assert await b.store.inbox.dismiss(second) == first
    assert await a.store.inbox.dismissal(RUN) == first


async def test_a_call_is_anothers_for_which_that_one_has_set_something_aside(a: Member, b: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    await b.store.load(RUN)
    await b.store.commit(reserved(begun))
    await a.store.load(RUN)
    assert await a.store.superseded(RUN, 1, 2)
    assert not await a.store.superseded(RUN, 1, 3)
    assert not await a.store.superseded(RUN, 2, 2)
    assert not await b.store.superseded(RUN, 1, 2)


def reserved(commit: Commit) -> Commit:
    return after(commit, CallReserved(at=NOON + HOUR / 2, call=1, model="m", reserve=Reserve(tokens=5, cost_usd=0.1)))
