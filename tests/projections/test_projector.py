"""The projector: what was committed stands in the workspace soon after, whatever fails meanwhile."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_service.errors import Damaged
from agent_service.telling.folder.projector import Marks, Projector
from agent_service.telling.folder.verify import verify
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import TrailWriter, rewrite
from agent_service.telling.outputs import FILES
from agent_service.telling.pages.trail import trail
from groundwork.service.errors import TryAgain
from tests.core.cues import RUN_ID
from tests.core.script import Script
from tests.kit.waiting import until
from tests.projections.fakes import Journals, Shelf
from tests.projections.journals import (
    CRITIQUE,
    PAGE,
    asked_for,
    entries_of,
    five_steps,
    worked_example,
)

ARTIFACTS = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


def run_id(number: int) -> str:
    return f"run_{number:026d}"


def runs(numbers: range) -> Journals:
    return Journals(*(entries_of(Script() >> asked_for("goal", run_id=run_id(number))) for number in numbers))


def projecting(journals: Journals, workspace: Workspace, shelf: Shelf | None = None, **times: Any) -> Projector:
    return Projector(TrailWriter(journals, workspace), workspace, shelf or Shelf(), **times)


@asynccontextmanager
async def running(projector: Projector) -> AsyncIterator[Projector]:
    work = asyncio.create_task(projector.run())
    try:
        yield projector
        assert not work.done(), "the projector stopped by itself"
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def caught_up(script: Script, workspace: Workspace, shelf: Shelf) -> None:
    projector = projecting(Journals(entries_of(script)), workspace, shelf)
    projector.catch_up([RUN_ID])
    await projector.flush()


def pages(workspace: Workspace, run: str = RUN_ID) -> dict[str, str]:
    return {name: (workspace.read(run, name) or b"").decode() for name in FILES}


async def test_an_ended_run_is_written_soon_with_all_its_files(workspace: Workspace) -> None:
    entries = entries_of(worked_example())
    async with running(projecting(Journals(entries), workspace, Shelf(ARTIFACTS), live_s=3600)) as projector:
        for ended in (False, True, False):
            projector.moved(RUN_ID, ended=ended)
        await until(lambda: workspace.read(RUN_ID, "artifacts/critique.md"))
    assert pages(workspace) == trail(entries)
    assert verify(entries, workspace, RUN_ID) == []


async def test_a_journal_out_of_reach_is_tried_again(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    journals = Journals(entries_of(five_steps()))
    journals.failure = TryAgain("the store is locked")
    async with running(projecting(journals, workspace, soon_s=0.01)) as projector:
        projector.moved(RUN_ID, ended=True)
        await until(lambda: caplog.records)
        assert workspace.caught_up_at() is None
        journals.failure = None
        await until(lambda: workspace.files(RUN_ID) is not None)
        await until(lambda: workspace.caught_up_at() is not None)
    assert "tried again" in caplog.text


async def test_one_run_that_fails_does_not_keep_back_the_others(
    workspace: Workspace, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = run_id(1), run_id(2)
    workspace.write([(good, {"plan.md": b"old"})])
    (root / bad).write_text("a file where a folder should be")
    projector = projecting(runs(range(1, 3)), workspace)
    projector.catch_up([bad, good])
    await projector.flush()
    assert workspace.read(good, "plan.md") != b"old"
    assert len(caplog.records) == 1


async def test_what_fails_every_time_is_given_up(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    journal, torn = entries_of(five_steps()), entries_of(five_steps(run_id(2)))
    unlawful = [replace(entry, run_id="R1") for entry in entries_of(Script() >> asked_for("goal", run_id="R1"))]
    unknown = replace(journal[3], kind="FutureEvent")
    newer = [*journal[:3], replace(unknown, hash=unknown.recomputed_hash())]
    journals = Journals(newer, unlawful, [*torn[:3], replace(torn[3], event="{")])
    damaged: list[Damaged] = []
    projector = projecting(journals, workspace, on_damage=damaged.append)
    projector.catch_up([RUN_ID, "R1", run_id(2)])
    await projector.flush()
    await projector.flush()
    assert sorted(journals.reads) == sorted(["R1", RUN_ID, run_id(2)])
    assert [record.getMessage() for record in caplog.records] == ["workspace not written, given up"] * 3
    assert [found.run_id for found in damaged] == [run_id(2)]


async def test_that_all_is_written_is_noted_as_the_time_before_which_nothing_is_behind(workspace: Workspace) -> None:
    assert workspace.caught_up_at() is None
    await caught_up(five_steps(), workspace, Shelf())
    noted = workspace.caught_up_at()
    assert noted is not None
    assert abs(datetime.now(UTC) - noted) < timedelta(minutes=1)


async def test_rebuilding_gives_the_same_bytes_without_what_was_added_by_hand(workspace: Workspace, root: Path) -> None:
    await caught_up(worked_example(), workspace, Shelf(ARTIFACTS))
    before = workspace.files(RUN_ID)
    (root / RUN_ID / "notes.txt").write_text("by hand")
    (root / RUN_ID / "plan.md").write_text("forged")
    await rewrite(RUN_ID, Journals(entries_of(worked_example())), workspace, Shelf(ARTIFACTS))
    assert workspace.files(RUN_ID) == before
    assert verify(entries_of(worked_example()), workspace, RUN_ID) == []


async def test_a_full_disk_does_not_stop_the_projector(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = Workspace(small_disk / "workspaces")
    hog = small_disk / "hog"
    with suppress(OSError), hog.open("wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()
    async with running(projecting(Journals(entries_of(five_steps())), workspace, soon_s=0.01)) as projector:
        projector.moved(RUN_ID, ended=True)
        await until(lambda: caplog.records)
        hog.unlink()
        await until(lambda: workspace.read(RUN_ID, "plan.md"))
        await projector.flush()
    assert verify(entries_of(five_steps()), workspace, RUN_ID) == []
    assert caplog.records[0].levelno == logging.ERROR


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


async def test_artifacts_are_copied_once_and_only_if_they_are_what_the_journal_names(
    workspace: Workspace, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf, critique = Shelf(ARTIFACTS | {"artifacts/critique.md": b"forged"}), "artifacts/critique.md"
    await caught_up(worked_example(), workspace, shelf)
    assert workspace.read(RUN_ID, "artifacts/fetch-01.html") == PAGE
    assert workspace.read(RUN_ID, critique) is None
    assert "artifact not copied" in caplog.text
    shelf.contents = dict(ARTIFACTS)
    await caught_up(worked_example(), workspace, shelf)
    assert workspace.read(RUN_ID, critique) == CRITIQUE
    (root / RUN_ID / critique).write_bytes(b"changed on disk")
    await caught_up(worked_example(), workspace, shelf)
    assert workspace.read(RUN_ID, critique) == CRITIQUE
    assert shelf.reads.count("artifacts/fetch-01.html") == 1


async def test_pages_are_written_while_the_store_of_artifacts_is_away(workspace: Workspace) -> None:
    shelf = Shelf(ARTIFACTS)
    shelf.failure = TryAgain("the bus is away")
    journals = Journals(entries_of(worked_example()))
    async with running(projecting(journals, workspace, shelf, soon_s=0.01)) as projector:
        projector.moved(RUN_ID, ended=True)
        await until(lambda: workspace.read(RUN_ID, "plan.md"))
        assert workspace.read(RUN_ID, "artifacts/critique.md") is None
        shelf.failure = None
        await until(lambda: workspace.read(RUN_ID, "artifacts/critique.md") == CRITIQUE)
