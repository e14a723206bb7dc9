"""Folders of runs: what was committed stands there soon after, whatever fails meanwhile, and is what the journal says.

Pages of runs that ended long ago are put away, and are there again for those who ask; of several agents each writes
what it is asked for, wherever that was decided.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_service.errors import Damaged
from agent_service.store.shared_log.store import SharedStore
from agent_service.telling.folder.on_demand import OnDemand
from agent_service.telling.folder.projector import Projector
from agent_service.telling.folder.run_files import ArtifactChanged, RunFiles
from agent_service.telling.folder.verify import verify
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import TrailWriter
from agent_service.telling.outputs import FILES
from groundwork.service.errors import TryAgain
from tests.core.cues import RUN_ID
from tests.core.script import NOON, Script
from tests.kit.memory_log import Member, MemoryLog, joined
from tests.kit.runs import run_id
from tests.kit.waiting import until
from tests.projections.fakes import Journals, Shelf, names
from tests.projections.journals import (
    CRITIQUE,
    PAGE,
    asked_for,
    commits_of,
    committed,
    entries_of,
    one_step,
    worked_example,
)

ARTIFACTS = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


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


async def test_an_ended_run_is_written_soon_and_its_artifacts_once_their_store_is_there(workspace: Workspace) -> None:
    entries, shelf = entries_of(worked_example()), Shelf(ARTIFACTS)
    shelf.failure = TryAgain("the bus is away")
    async with running(projecting(Journals(entries), workspace, shelf, soon_s=0.01, live_s=3600)) as projector:
        for ended in (False, True, False):
            projector.moved(RUN_ID, ended=ended)
        await until(lambda: workspace.read(RUN_ID, "plan.md"))
        assert workspace.read(RUN_ID, "artifacts/critique.md") is None
        shelf.failure = None
        await until(lambda: workspace.read(RUN_ID, "artifacts/critique.md") == CRITIQUE)
    assert verify(entries, workspace, RUN_ID) == []


async def test_a_journal_out_of_reach_is_tried_again(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    journals = Journals(entries_of(one_step()))
    journals.failure = TryAgain("the store is locked")
    async with running(projecting(journals, workspace, soon_s=0.01)) as projector:
        projector.moved(RUN_ID, ended=True)
        await until(lambda: caplog.records)
        assert workspace.caught_up_at() is None
        journals.failure = None
        await until(lambda: workspace.files(RUN_ID) is not None)
        await until(lambda: workspace.caught_up_at() is not None)
    assert abs(datetime.now(UTC) - (workspace.caught_up_at() or NOON)) < timedelta(minutes=1)
    assert "tried again" in caplog.text


async def test_what_fails_every_time_is_given_up(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    journal, torn = entries_of(one_step()), entries_of(one_step(run_id(2)))
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


# What is read of a folder


async def test_an_artifact_is_read_from_its_copy_or_else_from_the_store_and_never_what_is_not_recorded(
    workspace: Workspace,
) -> None:
    shelf, critique = Shelf(dict(ARTIFACTS)), "artifacts/critique.md"
    files = RunFiles(workspace, Journals(entries_of(worked_example())), shelf)
    assert await files.read(RUN_ID, critique) == CRITIQUE
    workspace.write([(RUN_ID, {critique: b"forged"})])
    assert await files.read(RUN_ID, critique) == CRITIQUE
    shelf.contents = {"artifacts/other.md": b"named by no journal"}
    with pytest.raises(ArtifactChanged, match=critique):
        await files.read(RUN_ID, critique)
    assert await files.read(RUN_ID, "artifacts/other.md") is None
    shelf.failure = TryAgain("the bus is away")
    workspace.write([(RUN_ID, {critique: CRITIQUE, "plan.md": b"# Plan"})])
    assert await files.read(RUN_ID, critique) == CRITIQUE
    assert await files.read(RUN_ID, "plan.md") == b"# Plan"


# Pages that are put away


RUNS = (run_id(1), run_id(2))
PAGES = dict.fromkeys(FILES, b"as the journal has it\n")


def test_artifacts_and_what_is_not_ours_stay(workspace: Workspace, root: Path) -> None:
    workspace.write([(RUNS[0], PAGES | {"artifacts/page.md": b"# A page\n"})])
    (root / RUNS[0] / "mine.txt").write_text("a note")
    workspace.put_away(RUNS[:1])
    assert names(root / RUNS[0]) == ["artifacts/page.md", "mine.txt"]
    assert not workspace.has_pages(RUNS[0])


@pytest.mark.attack
def test_nothing_is_removed_behind_a_link(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "plan.md").write_text("another's plan")
    workspace.write([(RUNS[1], PAGES)])
    (root / RUNS[0]).symlink_to(elsewhere)
    with pytest.raises(OSError, match="no plain file or folder of ours"):
        workspace.put_away(RUNS[:1])
    assert (elsewhere / "plan.md").exists()


def test_a_run_that_has_ended_is_whole_without_its_pages_and_not_without_some_of_them(workspace: Workspace) -> None:
    script = one_step(RUNS[0])
    assert verify(entries_of(script), workspace, RUNS[0]) == []
    workspace.write([(RUNS[0], {"plan.md": b"something\n"})])
    assert {flaw.kind for flaw in verify(entries_of(script), workspace, RUNS[0])} == {"missing", "changed"}


# Several agents of one store


def agent(member: Member, folder: Path, shelf: Shelf) -> tuple[SharedStore, Workspace, RunFiles]:
    """An agent, as far as people read of runs by it."""
    workspace = Workspace(folder)
    projector = Projector(TrailWriter(member.store, workspace), workspace, shelf)
    on_demand = OnDemand(member.store, projector, workspace)
    return member.store, workspace, RunFiles(workspace, member.store, shelf, on_demand.bring_up_to_date)


async def test_a_folder_is_as_new_as_the_newest_entry_and_not_shown_where_it_is_not(tmp_path: Path) -> None:
    log, shelf, commits = MemoryLog(), Shelf(dict(ARTIFACTS)), commits_of(worked_example())
    async with joined(log, tmp_path, "a") as a, joined(log, tmp_path, "b") as b:
        agents = [agent(member, tmp_path / name, shelf) for member, name in ((a, "of-a"), (b, "of-b"))]
        for number, commit in enumerate(commits[:-1]):
            await committed(agents[number % 2][0], commit)
        shelf.failure = TryAgain("the bus is away")
        with pytest.raises(TryAgain, match="the files of run"):
            await agents[1][2].files(RUN_ID)
        shelf.failure = None
        before = [await files.read(RUN_ID, "trace.jsonl") for _, _, files in agents]
        await committed(a.store, commits[-1])
        after = [await files.read(RUN_ID, "trace.jsonl") for _, _, files in agents]
        assert before[0] == before[1] != after[0] == after[1]
        for _, workspace, files in agents:
            listing = await files.files(RUN_ID)
            assert listing
            assert ARTIFACTS.keys() <= {file.path for file in listing.files}
            assert verify(entries_of(worked_example()), workspace, RUN_ID) == []
