"""`agentic demo` plays its run and leaves nothing running."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.invoke import interrupt, running_with, started
from tests.kit.waiting import wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all tests here: a demo has to work in the folder of an earlier one."""
    folder = tmp_path_factory.mktemp("demo")
    yield folder
    assert running_with(folder) == {}


def test_the_story_is_played_to_its_end_by_two_agents_and_no_step_runs_twice(folder: Path) -> None:
    with started("demo", "--json", "--dir", folder) as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    told = json.loads(out)
    assert (told["run"]["status"], told["verified"], told["agents"]) == ("done", True, 2)
    steps = [(step["tool"], step["command"], step["attempt"], step["status"]) for step in told["run"]["steps"]]
    commands = [("fetch", "handle"), ("fetch", "handle"), ("letters", "compare"), ("letters", "send")]
    assert steps == [(*command, 1, "ok") for command in commands]
    assert (folder / "outbox" / "how-we-copy.txt").read_text().count("(the other page: ") == 3
    for shown in ("Which one counts?", "kill -9", '"to": "the team"', "is as it was written"):
        assert shown in err
    assert running_with(folder) == {}


def test_a_demo_that_is_stopped_half_way_stops_everything(folder: Path) -> None:
    with started("demo", "--dir", folder) as process:
        assert process.stdout
        for line in process.stdout:
            if "kill -9" in line:
                break
        else:
            raise AssertionError(process.communicate())
        interrupt(process)
        interrupt(process)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "everything that was started is stopped" in out
    assert "Traceback" not in err
    wait_until(lambda: running_with(folder) == {})  # who writes the pages ends by itself when its agent has
