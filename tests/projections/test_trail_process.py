"""The process that writes the paper trail: over a database that the agent has open, and whatever becomes of either."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import IO, cast

import pytest

from agent_service.audit.process import Telling, TrailProcess
from agent_service.run.ports import Wake
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.on_demand import PutAway
from agent_service.telling.folder.projector import Projector
from agent_service.telling.folder.run_files import RunFiles
from agent_service.telling.folder.verify import verify
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.outputs import FILES
from tests.core.cues import RUN_ID
from tests.core.script import Script
from tests.kit.waiting import until
from tests.projections.fakes import Shelf
from tests.projections.journals import CRITIQUE, PAGE, commits_of, entries_of, one_step, worked_example

OTHER, THIRD = "run_01JD7Z0000000000000000000B", "run_01JD7Z0000000000000000000C"
MISSING = ("artifacts/fetch-01.html", "artifacts/critique.md")


async def stored(store: SqliteStore, script: Script, name: str) -> None:
    first, *others = commits_of(script)
    await store.accept(Wake(wake_id=name, digest=""), first)
    for commit in others:
        await store.commit(commit)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(tmp_path / "store") as opened:
        await stored(opened, worked_example(), "a")
        await stored(opened, one_step(OTHER), "b")
        yield opened


def pid_of(trails: TrailProcess) -> int:
    assert trails._process
    return trails._process.pid


async def test_a_projector_writes_by_it_what_the_journal_says(
    store: SqliteStore, workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    with closing(TrailProcess(tmp_path / "store", root, Telling())) as trails:
        projector = Projector(trails, workspace, Shelf(dict(zip(MISSING, (PAGE, CRITIQUE), strict=True))))
        projector.catch_up([RUN_ID, OTHER])
        await projector.flush()
        pid = pid_of(trails)
        assert verify(entries_of(worked_example()), workspace, RUN_ID) == []
        assert verify(entries_of(one_step(OTHER)), workspace, OTHER) == []
        await stored(store, one_step(THIRD), "c")
        projector.catch_up([THIRD])
        await projector.flush()
        assert pid_of(trails) == pid
        assert workspace.read(THIRD, "plan.md")


@pytest.mark.usefixtures("store")
async def test_it_tells_what_failed_and_which_artifacts_are_missing_and_an_answer_is_not_taken_for_the_next(
    root: Path, tmp_path: Path
) -> None:
    with closing(TrailProcess(tmp_path / "store", root, Telling())) as trails:
        await trails.write([])
        asking = asyncio.create_task(trails.write([RUN_ID]))
        await asyncio.sleep(0)
        asking.cancel()
        assert set(await trails.write([OTHER])) == {OTHER}
        await asyncio.to_thread(shutil.rmtree, root / OTHER)
        (root / OTHER).write_text("a file where a folder should be")
        outcomes = await trails.write([RUN_ID, OTHER, "R1"])
    assert tuple(artifact.path for artifact in outcomes[RUN_ID].missing) == MISSING
    assert "Unsafe" in outcomes[OTHER].why
    assert outcomes["R1"].why == ""


@pytest.mark.usefixtures("store")
async def test_a_signal_to_all_processes_of_the_agent_does_not_end_it_and_one_that_was_killed_is_started_again(
    root: Path, tmp_path: Path
) -> None:
    with closing(TrailProcess(tmp_path / "store", root, Telling())) as trails:
        await trails.write([])
        pid = pid_of(trails)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        assert (await trails.write([OTHER]))[OTHER].why == ""
        assert pid_of(trails) == pid
        os.kill(pid, signal.SIGKILL)
        outcomes = await trails.write([RUN_ID, OTHER])
    assert {outcome.why for outcome in outcomes.values()} == {""}


@pytest.mark.usefixtures("store")
async def test_it_ends_when_the_agent_is_killed(root: Path, tmp_path: Path) -> None:
    trails = TrailProcess(tmp_path / "store", root, Telling())
    await trails.write([])
    process = trails._process
    assert process
    with cast("IO[bytes]", process.stdout):
        cast("IO[bytes]", process.stdin).close()
        await until(lambda: process.poll() is not None)
    assert process.returncode == 0


@pytest.mark.usefixtures("store")
async def test_pages_that_were_put_away_are_written_again_as_they_were_when_they_are_read(
    store: SqliteStore, workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    with closing(TrailProcess(tmp_path / "store", root, Telling(keep_pages=1))) as trails:
        projector = Projector(trails, workspace, Shelf())
        files = RunFiles(workspace, store, Shelf(), PutAway(store, projector, workspace).bring_back)
        await projector.write(OTHER)
        before = workspace.read(OTHER, "decisions.md")
        await projector.write(RUN_ID)
        assert [workspace.has_pages(name) for name in (OTHER, RUN_ID)] == [False, True]
        assert await files.read(OTHER, "decisions.md") == before
        assert [workspace.has_pages(name) for name in (OTHER, RUN_ID)] == [True, False]
        listing = await files.files(RUN_ID)
        assert listing is not None
        assert {file.path for file in listing.files} == set(FILES)
        assert await files.files(THIRD) is None
