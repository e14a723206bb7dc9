"""A real Ductile is away between two steps of a run, or comes late: the run goes on, and every call is one job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ductile.circle import STARTS_WITHIN_S, Circle, drawn, real_ductile, services
from tests.kit.waiting import wait_until

pytestmark = real_ductile


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    """The services, and a Ductile that each test starts."""
    with drawn(tmp_path_factory.mktemp("circle")) as made, services(made):
        yield made


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
        steps = circle.ended(run_id)["steps"]
        assert [(step["tool"], step["attempt"]) for step in steps] == [("probe", 1), ("echo", 1)]
        assert circle.outcome(run_id).endswith("\n\nThe last tool was echo.\n")
    assert len(circle.held(file)) == 1, "the first step was one job"


def test_what_is_asked_before_ductile_is_there_is_done_once_it_is(tmp_path: Path) -> None:
    with drawn(tmp_path) as circle, services(circle) as ready:
        wait_until(lambda: "no tools yet" in circle.log("gateway"), lambda: circle.log("gateway")[-2000:])
        run_id = circle.wake(f"Fetch {circle.page}?early and write a critique.")
        with circle.ductile():
            ready.result(STARTS_WITHIN_S)
            assert circle.outcome(run_id)
            assert circle.outcome(circle.started("?scheduled"))
