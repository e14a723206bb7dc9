"""What every archive of runs keeps to, whatever store writes it."""

from datetime import timedelta

from agent_service.core.events import CancelRequested
from agent_service.core.waiting import Status
from agent_service.ports import Archive, RunLine, RunStore
from tests.kit.runs import NOON, SECOND, accepted, after, run_id, started, whole_run
from tests.ports.stores import stored

HOUR = timedelta(hours=1)


async def test_entries_are_read_in_order_from_any_place_on(store: RunStore, archive: Archive) -> None:
    await stored(store, whole_run(2)[:3])
    await stored(store, whole_run(1)[:5])
    assert [entry.seq for entry in await archive.entries(run_id(1), 3)] == [4, 5]
    assert [entry.seq for entry in await archive.entries(run_id(1), 1, 2)] == [2, 3]
    assert list(await archive.entries(run_id(1), 5)) == []


async def test_runs_are_listed_newest_first_and_page_by_page(store: RunStore, archive: Archive) -> None:
    for number in (2, 1, 4, 3):
        await stored(store, [accepted(number)])
    first = await archive.runs(status=None, limit=3, before=None)
    rest = await archive.runs(status=None, limit=3, before=first[-1].run_id)
    assert [[line.run_id for line in page] for page in (first, rest)] == [
        [run_id(4), run_id(3), run_id(2)],
        [run_id(1)],
    ]


async def test_runs_of_one_status_are_listed_page_by_page(store: RunStore, archive: Archive) -> None:
    for number in (1, 2, 3):
        await stored(store, [accepted(number)])
    await stored(store, whole_run(4)[:2])
    await store.commit(started(accepted(2)))
    first = await archive.runs(status=Status.QUEUED, limit=1, before=None)
    rest = await archive.runs(status=Status.QUEUED, limit=5, before=first[0].run_id)
    assert [line.run_id for line in (*first, *rest)] == [run_id(3), run_id(1)]
    assert list(await archive.runs(status=Status.DONE, limit=5, before=None)) == []


async def test_a_line_of_the_list_says_where_the_run_stands(store: RunStore, archive: Archive) -> None:
    last = await stored(store, whole_run(1))
    assert list(await archive.runs(status=Status.DONE, limit=5, before=None)) == [
        RunLine(
            run_id=run_id(1),
            wake_id="wake-1",
            status=Status.DONE,
            goal="Find the answer.",
            summary="The answer is 42.",
            accepted_at=NOON + SECOND,
            updated_at=last.entry.at,
        )
    ]


async def test_runs_are_counted_by_status(store: RunStore, archive: Archive) -> None:
    assert await archive.counts() == dict.fromkeys(Status, 0)
    for number in (1, 2):
        await stored(store, [accepted(number)])
    await stored(store, whole_run(3))
    expected = dict.fromkeys(Status, 0) | {Status.QUEUED: 2, Status.DONE: 1}
    assert await archive.counts() == expected


async def test_a_wake_id_leads_to_its_run(store: RunStore, archive: Archive) -> None:
    await stored(store, [accepted(1)])
    assert await archive.run_of("wake-1") == run_id(1)
    assert await archive.run_of("wake-2") is None


async def test_runs_that_have_not_ended_are_unsettled_however_long_they_rest(store: RunStore, archive: Archive) -> None:
    await stored(store, [accepted(1)])
    await stored(store, whole_run(2)[:2])
    await stored(store, whole_run(3))
    assert set(await archive.unsettled(NOON + 1000 * HOUR)) == {run_id(1), run_id(2)}


async def test_runs_that_ended_are_unsettled_for_a_while(store: RunStore, archive: Archive) -> None:
    ended = await stored(store, whole_run(1))
    await stored(store, whole_run(100))
    assert set(await archive.unsettled(ended.entry.at)) == {run_id(1), run_id(100)}
    assert list(await archive.unsettled(ended.entry.at + timedelta(microseconds=1))) == [run_id(100)]


async def test_a_clock_set_back_hides_no_run_that_has_just_ended(store: RunStore, archive: Archive) -> None:
    first = accepted(5)
    set_back = after(first, CancelRequested(at=NOON - HOUR, reason="the clock was set back"))
    await stored(store, [first, set_back])
    assert list(await archive.unsettled(first.entry.at)) == [run_id(5)]
