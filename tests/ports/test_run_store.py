"""Conformance of every run store: the truth about runs, one atomic commit at a time, and their lists."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.events import CancelRequested, SignalReceived
from agent_service.core.waiting import Status
from agent_service.errors import VersionMoved, WakeConflict
from agent_service.run.journal import flaw_in_chain, replay
from agent_service.store.lines import RunFilter, line_of
from agent_service.store.runs import RunStore
from schemas.events import Constraints, Signal
from tests.core.cues import RUN_ID
from tests.core.script import commits_of
from tests.core.words import run_at
from tests.kit.runs import DIGEST, NOON, SECOND, accepted, after, run_id, started, whole_run
from tests.ports.stores import Opener, as_loaded, stored

HOUR = timedelta(hours=1)


async def test_a_repeated_wake_gets_the_first_run_and_another_request_under_its_id_or_a_run_id_that_is_taken_none(
    store: RunStore,
) -> None:
    first, second = (
        accepted(number, wake_id="w", goal="Schreib “naïve” auf Ελληνικά; '); DROP TABLE runs; --\n\t🙂")
        for number in (1, 2)
    )
    for commit in (first, second):
        assert await store.accept(commit, DIGEST) == run_id(1)
    with pytest.raises(WakeConflict, match="use a new wake_id") as conflict:
        await store.accept(second, "another")
    assert conflict.value.run_id == run_id(1)
    with pytest.raises(VersionMoved):
        await store.accept(accepted(1, wake_id="v"), DIGEST)
    assert await store.run_by_wake("v") is None
    assert (await store.load(run_id(1)), await store.load(run_id(2))) == (as_loaded(first), None)
    assert await store.counts() == dict.fromkeys(Status, 0) | {Status.QUEUED: 1}


async def test_every_commit_is_loaded_as_it_was_decided_and_the_journal_folds_to_it(store: RunStore) -> None:
    commits = whole_run(1, steps=3)
    await store.accept(commits[0], DIGEST)
    for commit in commits[1:]:
        await store.commit(commit)
        assert await store.load(run_id(1)) == as_loaded(commit)
    entries = await store.entries(run_id(1))
    assert [commit.entry for commit in commits] == list(entries)
    assert flaw_in_chain(entries) is None
    assert [*replay(entries)][-1].state == commits[-1].state
    assert await store.accept(commits[0], DIGEST) == run_id(1), "also after its end"
    raised = Signal(run_id=run_id(2), signal_id="s", kind="raise_budget", constraints=Constraints(max_steps=17))
    changed = after(begun := started(accepted(2)), SignalReceived(at=NOON + HOUR / 2, signal=raised))
    await stored(store, [accepted(2), begun, changed])
    assert await store.load(run_id(2)) == as_loaded(changed), "its brief, too"
    assert changed.state.brief.limits.max_steps == 17


async def test_a_commit_whose_place_is_taken_or_that_leaves_a_gap_stores_nothing(store: RunStore) -> None:
    commits = whole_run(1)
    last = await stored(store, commits[:3])
    for wrong in (*(commits[place] for place in (0, 1, 2, 4)), *whole_run(2)[:2]):
        with pytest.raises(VersionMoved):
            await store.commit(wrong)
    assert await store.load(run_id(2)) is None
    assert await store.load(run_id(1)) == as_loaded(last)
    assert len(await store.entries(run_id(1))) == 3


async def test_of_commits_decided_at_once_on_one_version_one_wins(store: RunStore) -> None:
    begun = await stored(store, whole_run(1)[:2])
    rivals = [after(begun, CancelRequested(at=NOON, reason=f"person {n}")) for n in range(20)]
    answers = await asyncio.gather(*(store.commit(rival) for rival in rivals), return_exceptions=True)
    winners = [rival for rival, answer in zip(rivals, answers, strict=True) if answer is None]
    assert sum(isinstance(answer, VersionMoved) for answer in answers) == 19
    assert [await store.load(run_id(1))] == [as_loaded(winner) for winner in winners]
    assert (await store.entries(run_id(1)))[2:] == [winner.entry for winner in winners]


async def test_runs_fall_due_and_are_queued_the_earliest_first(store: RunStore) -> None:
    for number in (3, 1, 2):
        await stored(store, [accepted(number)])
    second_due = NOON + HOUR + 2 * SECOND
    assert list(await store.due(second_due, 10)) == [run_id(1), run_id(2)]
    assert list(await store.due(second_due - timedelta(microseconds=1), 10)) == [run_id(1)]
    assert list(await store.due(second_due + HOUR, 2)) == [run_id(1), run_id(2)]
    await store.commit(started(accepted(2)))
    await store.caught_up()
    assert list(await store.queued(5)) == [run_id(1), run_id(3)]
    assert list(await store.queued(1)) == [run_id(1)]
    asked_a_tool = await stored(store, whole_run(4)[:4])
    deadline = asked_a_tool.state.due_at
    assert deadline is not None
    assert list(await store.due(deadline, 10)) == [run_id(4)], "a commit moves the instant"


async def test_after_closing_and_opening_everything_is_as_it_was(opener: Opener) -> None:
    commits = whole_run(1, steps=2)[:6]
    async with opener() as opened:
        last = await stored(opened, commits)
    async with opener() as again:
        assert await again.load(run_id(1)) == as_loaded(last)
        assert list(await again.entries(run_id(1))) == [commit.entry for commit in commits]
        with pytest.raises(VersionMoved):
            await again.commit(commits[2])
        with pytest.raises(WakeConflict):
            await again.accept(commits[0], "another")


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
