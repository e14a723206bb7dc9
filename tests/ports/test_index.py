"""Journals and lists that every store serves."""

from datetime import timedelta
from typing import Any

from agent_service.core.events import CancelRequested
from agent_service.core.waiting import Status
from agent_service.store.lines import RunFilter, line_of
from agent_service.store.runs import RunStore
from tests.core.cues import RUN_ID
from tests.core.script import commits_of
from tests.core.words import run_at
from tests.kit.runs import NOON, accepted, after, run_id, whole_run
from tests.ports.stores import as_loaded, stored

HOUR = timedelta(hours=1)


async def test_entries_are_read_in_order_from_any_place_on(store: RunStore) -> None:
    await stored(store, whole_run(2)[:3])
    await stored(store, whole_run(1)[:5])
    assert [entry.seq for entry in await store.entries(run_id(1), 3)] == [4, 5]
    assert [entry.seq for entry in await store.entries(run_id(1), 1, 2)] == [2, 3]
    assert list(await store.entries(run_id(1), 5)) == []


async def listed(store: RunStore, **wanted: Any) -> list[str]:
    return [line.run_id for line in await store.runs(RunFilter(**wanted), limit=10)]


async def test_a_line_of_the_list_says_where_the_run_stands(store: RunStore) -> None:
    newest = [await stored(store, whole_run(far, steps=2)[:far]) for far in range(1, 9)]
    assert list(await store.runs(limit=9)) == [line_of(commit.state) for commit in reversed(newest)]


async def test_runs_of_several_statuses_are_listed_together_newest_first_and_a_page_goes_on_while_runs_are_added(
    store: RunStore,
) -> None:
    await stored(store, whole_run(4)[:2])
    for number in (1, 3, 5):
        await stored(store, [accepted(number)])
    await stored(store, whole_run(2))
    for wanted, runs in (
        (RunFilter(statuses=frozenset({Status.QUEUED, Status.RUNNING})), (5, 4, 3, 1)),
        (RunFilter(text="answer"), (6, 5, 4, 3, 2, 1)),
    ):
        first = await store.runs(wanted, limit=2)
        await stored(store, [accepted(runs[0] + 1)])
        rest = await store.runs(wanted, limit=9, before=first[-1].run_id)
        assert [line.run_id for line in (*first, *rest)] == [run_id(number) for number in runs]


BY_TEXT = {
    "PUMP": [2],
    "über den": [3],
    "ÜBER DEN": [3],
    "42": [1],
    "00003": [3],
    "100%": [2],
    "0_%": [],
    "%": [2],
    "'; DROP TABLE runs; --": [],
}


async def test_runs_are_found_by_a_text_of_goal_summary_or_id(store: RunStore) -> None:
    await stored(store, whole_run(1))
    await stored(store, [accepted(2, goal="Run the pump at 100%.")])
    await stored(store, [accepted(3, goal="Schreib Über den Fluss.")])
    found = {text: await listed(store, text=text) for text in BY_TEXT}
    assert found == {text: [run_id(number) for number in runs] for text, runs in BY_TEXT.items()}


async def test_runs_are_found_by_a_tool_that_they_used_or_wait_for(store: RunStore) -> None:
    await stored(store, [accepted(4)])
    await stored(store, whole_run(2)[:4])
    await stored(store, whole_run(3))
    assert await listed(store, tool="search") == [run_id(3), run_id(2)]
    assert await listed(store, tool="searc") == []
    story = run_at("run planning parallel_reads=2 ; many fetch browse ; error upstream retry")
    newest = await stored(store, commits_of(story))
    assert [await listed(store, tool=tool) for tool in ("fetch", "browse", "post")] == [[RUN_ID], [RUN_ID], []]
    assert await store.load(RUN_ID) == as_loaded(newest)


async def test_runs_that_ended_are_unsettled_for_a_while_also_with_a_clock_set_back(store: RunStore) -> None:
    ended = await stored(store, whole_run(1))
    await stored(store, whole_run(100))
    assert set(await store.changed_since(ended.entry.at, or_open=True)) == {run_id(1), run_id(100)}
    assert list(await store.changed_since(ended.entry.at + timedelta(microseconds=1), or_open=True)) == [run_id(100)]
    first = accepted(50)
    await stored(store, [first, after(first, CancelRequested(at=NOON - HOUR, reason="the clock was set back"))])
    assert run_id(50) in await store.changed_since(first.entry.at, or_open=True)
    await stored(store, [accepted(60)])
    assert [list(await store.changed_since(NOON + HOUR, or_open=wide)) for wide in (False, True)] == [[], [run_id(60)]]
