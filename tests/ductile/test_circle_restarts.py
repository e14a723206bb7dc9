"""A real Ductile ends in mid-job, is away between two steps, or comes late: runs go on, and every call is one job."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ductile.circle import STARTS_WITHIN_S, Circle, drawn, real_ductile, services
from tests.ductile.sample_house import PATIENCE_S
from tests.kit.waiting import wait_until

pytestmark = real_ductile

COMMANDS = ("look", "note")
"""One that reads, and one that writes."""


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    """The services, and a Ductile that each test starts."""
    with drawn(tmp_path_factory.mktemp("circle"), writing=True) as made, services(made):
        yield made


@dataclass(frozen=True, slots=True)
class Held:
    """A run whose first step waits in Ductile for a file."""

    run_id: str
    file: Path


def held(circle: Circle, name: str) -> list[Held]:
    """A run for each command."""
    files = {command: circle.folder / f"{name}-{command}" for command in COMMANDS}
    runs = [Held(circle.wake(f"hold {command} until {file}"), file) for command, file in files.items()]
    started(circle, runs, times=1)
    return runs


def started(circle: Circle, runs: list[Held], *, times: int) -> None:
    """Wait until the first step of each was begun as often."""
    begun = [times] * len(runs)
    wait_until(lambda: [len(circle.held(run.file)) for run in runs] == begun, lambda: str(circle.house.jobs("probe")))


def missed(circle: Circle) -> None:
    """Wait until the gateway has asked for a job, at the address of a Ductile that is away."""
    host, _, port = circle.house.url.removeprefix("http://").rpartition(":")
    with socket.create_server((host, int(port))) as nobody:
        nobody.settimeout(PATIENCE_S)
        wait_until(lambda: _asked(nobody).startswith(b"GET /job/"), lambda: "the gateway has not asked for a job")


def _asked(nobody: socket.socket) -> bytes:
    """What the next caller asks, who gets no answer."""
    caller, _ = nobody.accept()
    with caller:
        caller.settimeout(PATIENCE_S)
        return caller.recv(1024)


def done_by_one_job(circle: Circle, run: Held) -> None:
    """The run is done, and its first step was one call that was one job."""
    steps = circle.ended(run.run_id)["steps"]
    assert [(step["tool"], step["attempt"], step["status"]) for step in steps] == [
        ("probe", 1, "ok"),
        ("echo", 1, "ok"),
    ]
    (job_id,) = set(circle.held(run.file))
    assert circle.house.ask("GET", f"/job/{job_id}").json()["status"] == "succeeded"
    assert circle.outcome(run.run_id).endswith("\n\nThe last tool was echo.\n")


def test_jobs_that_a_kill_cuts_off_are_run_again_by_ductile_and_answer_the_same_calls(circle: Circle) -> None:
    with circle.ductile() as ductile:
        runs = held(circle, "killed")
        ductile.kill()
    missed(circle)
    with circle.ductile():
        started(circle, runs, times=2)  # while the first copies, which outlived Ductile, still run
        for run in runs:
            run.file.touch()
        for run in runs:
            done_by_one_job(circle, run)


def test_jobs_that_end_while_ductile_stops_are_run_again_by_ductile_and_answer_the_same_calls(circle: Circle) -> None:
    with circle.house.running() as ductile:
        runs = held(circle, "stopped")
        ductile.terminate()
        for run in runs:
            run.file.touch()
    started(circle, runs, times=1)
    missed(circle)
    with circle.ductile():
        started(circle, runs, times=2)
        for run in runs:
            done_by_one_job(circle, run)


def test_a_ductile_that_is_away_between_two_steps_and_at_the_end_costs_the_run_nothing(circle: Circle) -> None:
    file = circle.folder / "away"
    file.touch()
    with circle.ductile() as ductile:
        run_id = circle.wake(f"slowly hold look until {file}")
        wait_until(lambda: len(circle.results(run_id)) == 1, lambda: str(circle.run(run_id)))
        ductile.kill()
    wait_until(lambda: (circle.run(run_id)["pending"] or {}).get("step") == 2, lambda: str(circle.run(run_id)))
    with circle.ductile() as ductile:
        wait_until(lambda: len(circle.results(run_id)) == 2, lambda: str(circle.run(run_id)))
        ductile.kill()
    assert circle.ended(run_id)["state"] == "done"
    assert not (circle.house.outcomes / f"{run_id}.md").exists()
    with circle.ductile():
        done_by_one_job(circle, Held(run_id, file))
    assert len(circle.held(file)) == 1


def test_what_is_asked_before_ductile_is_there_is_done_once_it_is(tmp_path: Path) -> None:
    with drawn(tmp_path) as circle, services(circle) as ready:
        wait_until(lambda: "no tools yet" in circle.log("gateway"), lambda: circle.log("gateway")[-2000:])
        run_id = circle.wake(f"Fetch {circle.page}?early and write a critique.")
        with circle.ductile():
            ready.result(STARTS_WITHIN_S)
            assert circle.outcome(run_id)
            assert circle.outcome(circle.started("?scheduled"))
