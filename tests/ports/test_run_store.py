"""Conformance of every run store: the truth about runs, one atomic commit at a time."""

import asyncio
from datetime import timedelta

import pytest

from agent_service.core.events import CancelRequested, SignalReceived
from agent_service.core.waiting import Status
from agent_service.errors import VersionMoved, WakeConflict
from agent_service.run.journal import flaw_in_chain, replay
from agent_service.store.runs import RunStore
from schemas.events import Constraints, Signal
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
