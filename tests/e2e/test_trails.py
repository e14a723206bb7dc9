"""The paper trail is there soon after its run's end, also where the agent was killed in between."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.verify import verify
from agent_service.telling.folder.workspace import CAUGHT_UP, Workspace
from tests.core.cues import RUN_ID
from tests.core.script import NOON
from tests.e2e.bodies import recording, running, to_the_end, wake
from tests.kit.runs import wake_of
from tests.kit.waiting import until
from tests.projections.journals import commits_of, five_steps


async def test_a_run_that_ended_right_before_a_kill_long_ago_is_caught_up_with(tmp_path: Path) -> None:
    commits = commits_of(five_steps())
    workspace = Workspace(tmp_path / "workspaces")
    async with SqliteStore.open(tmp_path / "agent") as store:
        await store.accept(wake_of(commits[0]), commits[0])
        for commit in commits[1:]:
            await store.commit(commit)
    assert workspace.write([(RUN_ID, {"plan.md": b"as of an earlier entry"})]) == {}
    _noted_at((NOON - timedelta(seconds=1)).timestamp(), tmp_path)
    async with running(tmp_path, recording(tmp_path / "marks" / "lines", steps=1)):
        await until(lambda: not verify([commit.entry for commit in commits], workspace, RUN_ID), within_s=20)


def _noted_at(instant: float, folder: Path) -> None:
    file = folder / "workspaces" / CAUGHT_UP
    file.touch()
    os.utime(file, (instant, instant))


@pytest.mark.alone
async def test_the_folder_is_there_within_a_second_of_the_run_s_end(tmp_path: Path) -> None:
    async with running(tmp_path, recording(tmp_path / "marks" / "lines", steps=2)) as made:
        await to_the_end(made, await wake(made))  # the process that writes it is there from now on
        run_id = await wake(made, wake_id="another")
        await to_the_end(made, run_id)
        began, memory = time.monotonic(), made.workspaces / run_id / "memory.md"
        await until(lambda: memory.exists() and "**Ended: done**" in memory.read_text())
        assert time.monotonic() - began < 1.0
