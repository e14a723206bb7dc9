"""The projector: what was committed stands in the workspace soon after, whatever fails meanwhile."""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agent_service.errors import TryAgain
from agent_service.telling.folder.projector import MAX_BATCH, Projector
from agent_service.telling.folder.trail import FILES, trail
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import TrailWriter
from agent_service.telling.marks import Marks
from agent_service.telling.recollection import BESIDE_EVENT, Recollection
from agent_service.telling.verify import verify
from tests.core.cues import RUN_ID, a_waiting_run, cancel, returns
from tests.core.script import Script
from tests.kit.waiting import until
from tests.projections.fakes import Journals, Shelf
from tests.projections.journals import (
    CRITIQUE,
    PAGE,
    asked_for,
    commits_of,
    entries_of,
    five_steps,
    worked_example,
)
from tests.projections.loops import running

ARTIFACTS = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


def run_id(number: int) -> str:
    return f"run_{number:026d}"


def pages(workspace: Workspace, run: str = RUN_ID) -> dict[str, str]:
    return {name: (workspace.read(run, name) or b"").decode() for name in FILES}


async def test_an_ended_run_is_written_soon_with_all_its_files(workspace: Workspace) -> None:
    entries = entries_of(worked_example())
    async with running(Projector(Journals(entries), workspace, Shelf(ARTIFACTS))) as projector:
        projector.touched(RUN_ID, ended=True)
        await until(lambda: workspace.files(RUN_ID) is not None)
        await projector.flush()
    assert pages(workspace) == trail(entries)
    assert verify(entries, workspace, RUN_ID) == []


async def test_what_was_told_from_the_first_commit_on_is_not_read_again(workspace: Workspace) -> None:
    journals = Journals()
    projector = Projector(journals, workspace, Shelf(ARTIFACTS))
    for commit in commits_of(worked_example()):
        projector.committed(commit)
    await projector.flush()
    assert journals.reads == []
    assert pages(workspace) == trail(entries_of(worked_example()))


@pytest.mark.parametrize("missed", range(8))
async def test_a_commit_that_was_not_told_is_read_from_the_journal(missed: int, workspace: Workspace) -> None:
    commits = commits_of(worked_example())
    journals = Journals([commit.entry for commit in commits])
    projector = Projector(journals, workspace, Shelf(ARTIFACTS))
    for number, commit in enumerate(commits):
        if number == missed:
            projector.touched(RUN_ID, ended=commit.state.final)
        else:
            projector.committed(commit)
    await projector.flush()
    assert journals.reads == [RUN_ID]
    assert pages(workspace) == trail(entries_of(worked_example()))


async def test_a_late_result_after_the_end_is_written_too(workspace: Workspace) -> None:
    script = a_waiting_run() >> cancel()
    journals = Journals()
    projector = Projector(journals, workspace, Shelf())
    for commit in commits_of(script):
        projector.committed(commit)
    await projector.flush()
    late = commits_of(script >> returns())
    journals.journals[RUN_ID] = [commit.entry for commit in late]
    projector.committed(late[-1])
    await projector.flush()
    assert pages(workspace) == trail(entries_of(script))


async def test_a_run_that_goes_on_is_written_at_most_once_in_its_interval(workspace: Workspace) -> None:
    journals = Journals(entries_of(a_waiting_run()))
    async with running(Projector(journals, workspace, Shelf(), live_s=0.2, soon_s=0.01)) as projector:
        began = time.monotonic()
        while len(journals.reads) < 3:
            projector.touched(RUN_ID, ended=False)
            await asyncio.sleep(0.002)
        assert time.monotonic() - began >= 0.6


async def test_the_end_of_a_run_does_not_wait_for_its_interval(workspace: Workspace) -> None:
    async with running(Projector(Journals(entries_of(five_steps())), workspace, Shelf(), live_s=3600)) as projector:
        projector.touched(RUN_ID, ended=False)
        projector.touched(RUN_ID, ended=True)
        projector.touched(RUN_ID, ended=False)
        await until(lambda: workspace.files(RUN_ID) is not None)


async def test_flush_writes_all_that_is_marked_due_or_not(workspace: Workspace) -> None:
    numbers = range(2 * MAX_BATCH + 5)
    journals = Journals(*(entries_of(Script() >> asked_for("goal", run_id=run_id(number))) for number in numbers))
    projector = Projector(journals, workspace, Shelf(), live_s=3600)
    for number in numbers:
        projector.touched(run_id(number), ended=False)
    await projector.flush()
    assert all(workspace.read(run_id(number), "plan.md") for number in numbers)
    await projector.flush()
    assert len(journals.reads) == len(numbers)


async def test_flush_waits_for_what_is_being_written(workspace: Workspace) -> None:
    journals = Journals(entries_of(five_steps()))
    journals.open.clear()
    async with running(Projector(journals, workspace, Shelf(), soon_s=0.001)) as projector:
        projector.touched(RUN_ID, ended=True)
        await until(lambda: journals.reads)
        flushing = asyncio.create_task(projector.flush())
        journals.open.set()
        await flushing
        assert workspace.read(RUN_ID, "plan.md")


async def test_what_was_being_written_when_it_was_cancelled_stays_marked(workspace: Workspace) -> None:
    numbers = range(MAX_BATCH + 3)
    journals = Journals(*(entries_of(Script() >> asked_for("goal", run_id=run_id(number))) for number in numbers))
    journals.open.clear()
    projector = Projector(journals, workspace, Shelf())
    projector.catch_up(map(run_id, numbers))
    flushing = asyncio.create_task(projector.flush())
    await until(lambda: journals.reads)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    journals.open.set()
    await projector.flush()
    assert all(workspace.read(run_id(number), "plan.md") for number in numbers)


async def test_catching_up_writes_what_an_earlier_process_left(workspace: Workspace) -> None:
    entries = entries_of(five_steps())
    projector = Projector(Journals(entries), workspace, Shelf())
    projector.catch_up([RUN_ID])
    await projector.flush()
    assert pages(workspace) == trail(entries)


async def test_an_unknown_run_gets_no_folder(workspace: Workspace) -> None:
    projector = Projector(Journals(), workspace, Shelf())
    projector.catch_up([RUN_ID])
    await projector.flush()
    assert workspace.files(RUN_ID) is None


async def test_a_journal_out_of_reach_is_tried_again(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    journals = Journals(entries_of(five_steps()))
    journals.failure = TryAgain("the store is locked")
    async with running(Projector(journals, workspace, Shelf(), soon_s=0.01)) as projector:
        projector.touched(RUN_ID, ended=True)
        await until(lambda: caplog.records)
        journals.failure = None
        await until(lambda: workspace.files(RUN_ID) is not None)
    assert "tried again" in caplog.text


async def test_one_run_that_fails_does_not_keep_back_the_others(
    workspace: Workspace, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = run_id(1), run_id(2)
    journals = Journals(*(entries_of(Script() >> asked_for("goal", run_id=run)) for run in (good, bad)))
    workspace.write([(good, {"plan.md": b"old"})])
    (root / bad).write_text("a file where a folder should be")
    projector = Projector(journals, workspace, Shelf())
    projector.catch_up([bad, good])
    await projector.flush()
    assert workspace.read(good, "plan.md")
    assert len(caplog.records) == 1


async def test_what_fails_every_time_is_given_up(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    journal = entries_of(five_steps())
    unlawful = [replace(entry, run_id="R1") for entry in entries_of(Script() >> asked_for("goal", run_id="R1"))]
    journals = Journals([*journal[:3], replace(journal[3], kind="FutureEvent")], unlawful)
    projector = Projector(journals, workspace, Shelf())
    projector.catch_up([RUN_ID, "R1"])
    await projector.flush()
    await projector.flush()
    assert sorted(journals.reads) == ["R1", RUN_ID]
    assert [record.getMessage() for record in caplog.records] == ["workspace not written, given up"] * 2


async def test_rebuilding_gives_the_same_bytes_without_what_was_added_by_hand(workspace: Workspace, root: Path) -> None:
    projector = Projector(Journals(entries_of(worked_example())), workspace, Shelf(ARTIFACTS))
    projector.catch_up([RUN_ID])
    await projector.flush()
    before = workspace.files(RUN_ID)
    (root / RUN_ID / "notes.txt").write_text("by hand")
    (root / RUN_ID / "plan.md").write_text("forged")
    await projector.rebuild(RUN_ID)
    assert workspace.files(RUN_ID) == before
    assert verify(entries_of(worked_example()), workspace, RUN_ID) == []


async def test_rebuilding_leaves_the_folder_alone_while_the_artifacts_cannot_be_had(workspace: Workspace) -> None:
    shelf = Shelf(ARTIFACTS)
    projector = Projector(Journals(entries_of(worked_example())), workspace, shelf)
    await projector.rebuild(RUN_ID)
    before = workspace.files(RUN_ID)
    shelf.failure = TryAgain("the bus is away")
    with pytest.raises(TryAgain):
        await projector.rebuild(RUN_ID)
    assert workspace.files(RUN_ID) == before


async def test_a_full_disk_does_not_stop_the_projector(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = Workspace(small_disk / "workspaces")
    hog = small_disk / "hog"
    with suppress(OSError), hog.open("wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()
    async with running(Projector(Journals(entries_of(five_steps())), workspace, Shelf(), soon_s=0.01)) as projector:
        projector.touched(RUN_ID, ended=True)
        await until(lambda: caplog.records)
        hog.unlink()
        await until(lambda: workspace.read(RUN_ID, "plan.md"))
        await projector.flush()
    assert verify(entries_of(five_steps()), workspace, RUN_ID) == []
    assert caplog.records[0].levelno == logging.ERROR


async def test_the_event_loop_goes_on_while_runs_are_written(workspace: Workspace) -> None:
    numbers = range(100)
    journals = Journals(*(entries_of(five_steps(run_id=run_id(number))) for number in numbers))
    projector = Projector(journals, workspace, Shelf())
    projector.catch_up(map(run_id, numbers))
    flushing = asyncio.create_task(projector.flush())
    turns = 0
    while not flushing.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 1_000


async def test_a_run_that_has_ended_and_is_written_is_remembered_no_longer(workspace: Workspace) -> None:
    recollection = Recollection(capacity=1_000_000)
    writer = TrailWriter(Journals(), workspace, Shelf(), recollection=recollection)
    ended, live = commits_of(five_steps(run_id(1))), commits_of(five_steps(run_id(2)))[:-1]
    for commit in (*ended, *live):
        recollection.add(commit)
    assert await writer.write([run_id(1), run_id(2)]) == {}
    assert recollection.of(run_id(1)) == ()
    assert len(recollection.of(run_id(2))) == len(live)


async def test_marks_fall_due_in_order_and_failures_wait_longer_each_time() -> None:
    marks = Marks()
    marks.mark("later", 3600.0)
    marks.mark("second", 0.0)
    marks.mark("first", -1.0)
    assert marks.take(1) == ["first"]
    assert marks.take(9) == ["second"]
    assert [marks.failed(["x"]) for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    marks.settled(["x"])
    assert marks.failed(["x"]) == 1.0
    assert marks.take_all() == ["x", "later"]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(marks.wait(), 0.01)


def test_a_recollection_is_whole_or_nothing_and_keeps_its_size() -> None:
    first, second = commits_of(five_steps(run_id(1))), commits_of(five_steps(run_id(2)))
    events = sum(len(commit.entry.event) + BESIDE_EVENT for commit in (*first, *second[:6]))
    recollection = Recollection(capacity=events)
    for commit in first:
        recollection.add(commit)
    assert [entry for entry, _ in recollection.of(run_id(1))] == [commit.entry for commit in first]
    for commit in second[:6]:
        recollection.add(commit)
    assert recollection.of(run_id(1)) != ()
    recollection.add(second[6])
    assert recollection.of(run_id(1)) == ()
    assert len(recollection.of(run_id(2))) == 7
    recollection.add(second[8])
    assert recollection.of(run_id(2)) == ()
    recollection.add(second[9])
    assert recollection.of(run_id(2)) == ()
