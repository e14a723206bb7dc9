"""Faults that only a store shared by several processes can have."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from agent_service.api.feed import Feed
from agent_service.archive.pruning import delete_runs
from agent_service.archive.retention import EndedRun
from agent_service.cluster import Redelivery
from agent_service.core.events import SignalReceived
from agent_service.core.facts import CallReserved
from agent_service.core.waiting import CallReserve, Status
from agent_service.errors import Damaged, NewerVersion
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, turn_id
from agent_service.run.journal import Commit
from agent_service.run.turn import Turns
from agent_service.store import journals
from agent_service.store.messages import ROW, SNAPSHOT_EVERY, RunRow, encoded, message_of
from agent_service.store.runs import RunStore
from agent_service.store.shared import SharedStore
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import ALL
from groundwork.service.errors import NoRoom, TryAgain
from groundwork.sqlite.replica import PATIENCE_S
from schemas import subjects
from schemas.envelope import MSG_ID
from schemas.events import Signal
from schemas.status import Halt
from schemas.values import replace
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.runs import DIGEST, NOON, accepted, after, run_id, started, whole_run
from tests.kit.waiting import until
from tests.ports.stores import as_loaded, stored
from tests.shell.stored import thinks

HOUR = timedelta(hours=1)
RUN = run_id(1)


def noted(commit: Commit, by: str) -> Commit:
    said = Signal(run_id=commit.state.run_id, signal_id=f"of-{by}", kind="message", message=f"said {by}")
    return after(commit, SignalReceived(at=NOON + HOUR / 2, signal=said))


def subject_of(commit: Commit) -> str:
    return subjects.stored_run(commit.state.wake_id, commit.state.run_id)


def row(commit: Commit) -> dict[str, str]:
    return RunRow.of(commit, None, by="a", digest="digest", whole_at=0, size=0, dispatched=0).header


def test_a_shared_store_has_its_own_of_all_that_one_agent_s_store_reads_from_rows_of_entries() -> None:
    """It has no such rows: a method that it inherited would find no entry."""
    public = {name for name, it in vars(RunStore).items() if callable(it) and not name.startswith("_")}
    assert public - vars(SharedStore).keys() == {"quarantine", "keep_halt", "dismiss"}, "these call the others"


async def test_nothing_is_stored_in_a_log_that_is_full_and_it_goes_on_once_there_is_room(a: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    a.wire.next.append("full")
    with pytest.raises(NoRoom):
        await a.store.commit(noted(begun, "a"))
    await a.store.commit(noted(begun, "a"))
    assert await a.store.is_current(RUN, 3)


async def test_a_run_is_as_new_as_the_index_though_it_was_read_before(a: Member, b: Member) -> None:
    *begun, newest = whole_run(1)[:3]
    await stored(a.store, begun)
    await b.store.caught_up()
    read = b.wire.read

    async def overtaken(subject: str, after: int, most: int = ALL) -> list[StoredMessage]:
        found = await read(subject, after, most)
        b.wire.read = read  # type: ignore[method-assign] # this read alone
        await a.store.commit(newest)
        await b.store.caught_up()
        return found

    b.wire.read = overtaken  # type: ignore[method-assign] # same
    await b.store.load(RUN)
    assert await b.store.load(RUN) == as_loaded(newest)


async def test_the_journal_of_all_runs_tells_no_entry_that_its_run_does_not_have_yet(a: Member, b: Member) -> None:
    *begun, newest = whole_run(1)[:3]
    await stored(a.store, begun)
    await b.store.caught_up()
    await b.store.load(RUN)
    seen = b.store.newest()
    b.wire.open.clear()
    await a.store.commit(newest)
    assert await b.store.places(seen, 9) == []
    b.wire.open.set()
    await b.store.caught_up()
    assert [place.seq for place in await b.store.places(seen, 9)] == [3]
    assert [entry.seq for entry in await b.store.entries(RUN, 2)] == [3]


async def test_a_new_run_is_in_the_index_once_it_is_accepted(a: Member) -> None:
    for number in (1, 2):
        await a.store.accept(accepted(number), DIGEST)
        assert a.store.version(run_id(number)) == 1


async def test_a_commit_does_not_wait_for_the_index_and_the_journal_of_all_runs_waits_for_own_entries(
    a: Member,
) -> None:
    *begun, newest = whole_run(1)[:3]
    await stored(a.store, begun)
    seen = a.store.newest()
    a.wire.open.clear()
    async with asyncio.timeout(PATIENCE_S / 2):
        await a.store.commit(newest)
    assert (await a.store.load(RUN), a.store.version(RUN)) == (as_loaded(newest), 2), "the index is behind"
    assert (a.store.newest(), a.store.head(RUN)) == (seen + 1, (3, newest.entry.hash)), "what it tells others is not"
    shown = asyncio.ensure_future(a.store.places(seen, 9))
    a.wire.open.set()
    assert [place.seq for place in await shown] == [3]


async def test_followers_of_an_own_entry_that_the_index_does_not_have_yet_are_sent_it_and_nothing_else(
    a: Member,
) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    newest, observers, read, reads = noted(begun, "a"), list[Any](), a.wire.read, list[int]()

    async def counted(subject: str, after: int, most: int = ALL) -> list[StoredMessage]:
        reads.append(after)
        return await read(subject, after, most)

    async def follow(stream: Any) -> None:
        sent.append([])
        frames = sent[-1]
        async for frame in stream.body_iterator:
            frames.append(frame)

    a.wire.read = counted  # type: ignore[method-assign] # this log alone
    feed, sent = Feed(a.store, observers, poll_s=3600.0), list[list[Any]]()
    streams = await feed.follow_run(RUN, "2"), *[await feed.follow_all() for _ in range(5)]
    following = [asyncio.ensure_future(follow(stream)) for stream in streams]
    await until(lambda: len(reads) == 5)
    await a.store.commit(newest)
    observers[0](newest)
    await until(lambda: all(sent))
    await asyncio.sleep(0.1)
    for task in following:
        task.cancel()
    assert [len(frames) for frames in sent] == [1] * 6, "an entry each, and no sign of life"
    assert len(reads) <= 5 + 3, "they share a read"


async def test_an_own_entry_is_in_its_run_once_the_index_has_it_though_its_answer_is_late(a: Member) -> None:
    *begun, newest = whole_run(1)[:3]
    await stored(a.store, begun)
    before, append, seen = a.store.newest(), a.wire.append, list[object]()

    async def late(subject: str, body: bytes, **how: Any) -> int:
        position = await append(subject, body, **how)
        await a.store.caught_up()
        seen.extend([place.seq for place in await a.store.places(before, 9)])
        seen.extend([*await a.store.entries(RUN, 2), await a.store.load(RUN)])
        return position

    a.wire.append = late  # type: ignore[method-assign] # this answer alone is late
    await a.store.commit(newest)
    assert seen == [3, newest.entry, as_loaded(newest)]
    assert await a.store.load(RUN) == as_loaded(newest)


async def test_a_long_run_is_read_from_the_newest_message_that_says_all_of_it(
    a: Member, b: Member, log: MemoryLog, tmp_path: Path
) -> None:
    commits = list(whole_run(1)[:2])
    while len(commits) < SNAPSHOT_EVERY + 5:
        commits.append(noted(commits[-1], str(len(commits))))
    last = await stored(a.store, commits)
    await b.store.caught_up()
    assert list(await b.store.entries(RUN, 2, 3)) == [commit.entry for commit in commits[2:5]]
    log.facts = log.facts[SNAPSHOT_EVERY:]
    async with joined(log, tmp_path) as c:
        assert await c.store.load(RUN) == as_loaded(last)
        assert await c.store.entries(RUN, last.entry.seq - 1) == [last.entry]


NO_FACTS = (b"", b"{}", b"\xff", b'{"v":0,"by":"x"}', b'{"v":1e999}', b"[" * 100_000)


async def test_a_fact_that_no_agent_wrote_sets_its_run_aside_and_no_other(
    a: Member, log: MemoryLog, tmp_path: Path
) -> None:
    runs = [whole_run(number) for number in range(1, len(NO_FACTS) + 2)]
    for run in runs:
        await stored(a.store, run[:2])
    *damaged, sound = runs
    for run, body in zip(damaged, NO_FACTS, strict=True):
        await log.append(subject_of(run[0]), body, after=None)
    await a.store.commit(sound[2])
    await a.store.caught_up()
    async with joined(log, tmp_path) as b:
        assert await b.store.load(sound[0].state.run_id) == as_loaded(sound[2])
        for run in damaged:
            for member in (a, b):
                with pytest.raises(Damaged, match="log of all runs"):
                    await member.store.load(run[0].state.run_id)
            with pytest.raises(Damaged):
                await a.store.commit(run[2])


async def test_a_run_whose_entries_were_purged_or_do_not_continue_it_is_set_aside(
    a: Member, b: Member, log: MemoryLog
) -> None:
    skipped, purged = whole_run(1), whole_run(2)
    for commits in (skipped, purged):
        await stored(a.store, commits[:2])
    body = encoded(message_of(skipped[3], "a", whole=False))
    await log.append(subject_of(skipped[0]), body, after=None, headers=row(skipped[3]))
    for member in (a, b):
        await member.store.caught_up()
    with pytest.raises(Damaged, match="does not continue entry 2"):
        await a.store.load(RUN)
    await log.purge(subject_of(purged[0]))
    for of_one_purged in (a.store.commit(purged[2]), b.store.load(run_id(2))):
        with pytest.raises(Damaged, match="no entry of it any more"):
            await of_one_purged


async def test_a_run_that_a_newer_version_moved_on_is_left_to_its_like(
    a: Member, log: MemoryLog, tmp_path: Path
) -> None:
    commits = whole_run(1)
    await stored(a.store, commits[:2])
    a.wire.open.clear()
    await log.append(subject_of(commits[0]), b'{"v":99}', after=None, headers={ROW: '{"v":9999}'})
    with pytest.raises(NewerVersion):
        await a.store.commit(commits[2])
    a.wire.open.set()
    await a.store.caught_up()
    for _ in range(2):
        with pytest.raises(NewerVersion, match="Upgrade this one"):
            await a.store.load(RUN)
    with pytest.raises(NewerVersion):
        await a.store.is_current(RUN, 2)
    async with joined(log, tmp_path) as b:
        with Feed(b.store).follow() as channel:
            assert (await channel.after(0)).number == b.store.newest(), "events of other runs follow"
        ended = EndedRun(run_id=RUN, status=Status.DONE, version=2, at=NOON)
        assert await delete_runs(b.store, [ended], "rule", NOON) == set()
        with pytest.raises(NewerVersion):
            await b.store.load(RUN)
    assert await a.store.due(NOON + 100 * HOUR, 9) == []


async def test_a_run_that_a_newer_version_alone_wrote_is_not_taken_for_unknown_nor_its_wake_again(
    a: Member, log: MemoryLog
) -> None:
    wake = accepted(1)
    await log.append(subject_of(wake), b'{"v":99}', after=0, headers={ROW: '{"v":9999}'})
    with pytest.raises(NewerVersion):
        await a.store.load(RUN)
    with pytest.raises(TryAgain, match="newer version"):
        await a.store.accept(wake, DIGEST)


async def test_a_stop_is_everybodys_and_who_comes_late_with_another_word_looks_again(a: Member, b: Member) -> None:
    stop = Halt(number=1, since=NOON, by="ops", reason="drill")
    await a.store.keep_halt(stop)
    await b.store.caught_up()
    assert await b.store.newest_halt() == stop
    assert (a.halts, b.halts) == ([], [stop])
    with pytest.raises(TryAgain, match="look again"):
        await b.store.keep_halt(Halt(number=1, since=NOON, by="somebody else", reason="other"))
    over = stop.model_copy(update={"until": NOON + HOUR, "until_by": "ops"})
    await b.store.keep_halt(over)
    with pytest.raises(TryAgain, match="look again"):
        await a.store.keep_halt(stop)
    await a.store.caught_up()
    assert await a.store.newest_halt() == over


def in_hand(name: str, delivered: int = 1) -> InboundMessage:
    """From now on the test works on this message."""
    consumer, _, place = name.partition("/")
    message = InboundMessage(subject="", body=b"", consumer=consumer, place=place, delivered=delivered)
    CURRENT_MESSAGE.set(message)
    return message


def queued_turn(seq: int) -> InboundMessage:
    return InboundMessage(subject=subjects.TURN, body=b"", place="5", headers={MSG_ID: turn_id(RUN, seq)})


async def test_what_a_message_began_is_found_by_its_name_whichever_delivery_it_was(a: Member, b: Member) -> None:
    accepted_, begun, *later = whole_run(1)
    await stored(a.store, [accepted_])
    in_hand("loop/7")
    await a.store.commit(begun)
    again = in_hand("loop/7", delivered=2)
    await a.store.commit(later[0])
    in_hand("loop/77")
    await a.store.commit(later[1])
    await b.store.caught_up()
    assert await b.store.entries_under(RUN, again) == {2, 3}
    assert await b.store.entries_under(RUN, queued_turn(1)) == {1}


@pytest.mark.parametrize("by_its_turn", [True, False])
async def test_the_newest_entry_is_in_its_run_where_it_is_asked_for_however_far_the_index_is_behind(
    a: Member, b: Member, *, by_its_turn: bool
) -> None:
    *begun, newest = whole_run(1)[:3]
    await stored(a.store, begun)
    await b.store.caught_up()
    parts: Any = (b.store, Mock(), None, None, [])
    turns = Turns(*parts)
    assert await turns.state(RUN) == begun[-1].state
    b.wire.open.clear()
    await a.store.commit(newest)
    if by_its_turn:
        assert await b.store.entries_under(RUN, queued_turn(3)) == {3}
        assert await b.store.load(RUN) == as_loaded(newest)
    else:
        assert await turns.current(RUN) == newest.state
    b.wire.open.set()


async def test_a_turn_that_was_queued_for_an_entry_that_the_log_has_lost_does_not_bar_its_run(
    a: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LOOK_AGAIN_S", 0)
    begun = await stored(a.store, whole_run(1)[:2])
    await a.store.entries_under(RUN, queued_turn(9))
    with pytest.raises(TryAgain, match="no server has entry 9"):
        await a.store.load(RUN)
    assert await a.store.load(RUN) == as_loaded(begun)
    await a.store.entries_under(RUN, replace(queued_turn(9), delivered=2))
    assert await a.store.load(RUN) == as_loaded(begun)


async def test_the_message_of_a_reply_that_was_stored_without_an_answer_comes_again(a: Member) -> None:
    begun, replied = await stored(a.store, whole_run(1)[:2]), whole_run(1)[2]
    parts: Any = (a.store, Mock(), thinks(replied.event), None, [])
    turns = Turns(*parts)
    turns.outbox = Redelivery(a.store.mark_dispatched)
    a.wire.next.append("lost")
    with pytest.raises(TryAgain, match="no answer"):
        await turns.resume(begun.state, (2,), tuple, asks=True)
    assert await a.store.load(RUN) == as_loaded(replied)


async def test_a_reserved_call_is_made_again_by_the_message_that_reserved_it_and_by_no_other(a: Member) -> None:
    begun = await stored(a.store, whole_run(1)[:2])
    assert begun.state.active_call
    call = begun.state.active_call.call
    in_hand("loop/7")
    assert await a.store.may_call_model(RUN, call), "nothing is set aside for it"
    reserve = CallReserve(tokens=2000, cost_usd=0.02, reply_tokens=500)
    await a.store.commit(after(begun, CallReserved(at=NOON, call=call, model="m", reserve=reserve)))
    assert await a.store.may_call_model(RUN, call)
    assert not await a.store.superseded(RUN, call, 0)
    in_hand("loop/7", delivered=2)
    assert await a.store.may_call_model(RUN, call)
    assert await a.store.superseded(RUN, call, 0), "another process may have the first delivery still"
    in_hand("control/8", delivered=2)
    assert not await a.store.may_call_model(RUN, call)


async def test_an_entry_that_no_message_led_to_is_named_by_any_agent_until_its_turn_is_seen(
    a: Member, b: Member, log: MemoryLog, tmp_path: Path
) -> None:
    a.store.turn_expected_within_s = b.store.turn_expected_within_s = 0.0
    await stored(a.store, [accepted(1)])
    await stored(a.store, [accepted(2)])
    CURRENT_MESSAGE.set(queued_turn(1))
    await a.store.commit(started(accepted(1)))
    for member in (a, b):
        await member.store.caught_up()
    assert (a.store.overdue_turns(), b.store.overdue_turns()) == ([(run_id(2), 1)], [(run_id(2), 1)])
    b.store.turn_seen(turn_id(run_id(2), 1))
    assert b.store.overdue_turns() == []
    async with joined(log, tmp_path) as c:
        c.store.turn_expected_within_s = 0.0
        await c.store.begin()
        assert c.store.overdue_turns() == [(run_id(2), 1)], "also one that starts later"
