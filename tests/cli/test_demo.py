"""`agentic demo`: it shows what it says it shows, and leaves nothing running."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.calling import agentic, interrupt, running_with, started
from tests.kit.waiting import wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all tests here: a demo in the folder of an earlier one has to work."""
    folder = tmp_path_factory.mktemp("demo")
    yield folder
    assert running_with(folder) == {}


def test_a_killed_agent_goes_on_at_the_pending_step_and_no_step_runs_twice(folder: Path) -> None:
    called = agentic("demo", "--chaos", "--json", "--dir", folder)
    assert called.code == 0, called.err
    told = called.document
    assert told["run"]["state"] == "done"
    assert told["verified"]
    assert told["page_visits"] == 1
    crash = told["crash"]
    assert crash["pending_step"] == 1
    assert crash["first_entry_after"] == crash["last_entry_before"] + 1
    assert "kill -9" in called.err
    assert running_with(folder) == {}


def test_constraints_that_contradict_each_other_are_relaxed_as_a_page_allows(folder: Path) -> None:
    called = agentic("demo", "--z3", "--json", "--dir", folder)
    assert called.code == 0, called.err
    told = called.document
    assert (told["run"]["state"], told["verified"]) == ("done", True)
    (step,) = told["run"]["steps"]
    requests = [(task["task"], task["round"], task["tool"], task["status"]) for task in step["tasks"]]
    assert requests == [("task-1", 1, "knowledge", "ok"), ("again", 2, "z3-solver", "ok")]
    assert "cost <= 10000 became cost <= 11000" in step["summary"]
    assert running_with(folder) == {}


def test_a_demo_that_is_stopped_half_way_stops_everything(folder: Path) -> None:
    with started("demo", "--chaos", "--dir", folder) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("kill -9"):
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
