"""Every course, and a death at each of its points: whatever was done by then, the course ends as it would have.

A point is an effect on the world: a message, an acknowledgement, a request, a commit. Processes die before it.
"""

import os
from contextlib import closing

import pytest

from tests.sim.courses import COURSES
from tests.sim.world import World

LONG = 60


def points_of(name: str) -> list[str]:
    """The effects that the processes have when nothing goes wrong."""
    with closing(World(COURSES[name])) as world:
        world.play()
        return list(world.strikes.names)


def struck(points: list[str]) -> list[tuple[int, str]]:
    """With their numbers. All at night; by day, of a long course, the first of each name and a third of the rest."""
    numbered = list(enumerate(points, start=1))
    if len(points) <= LONG or "SIM_SEEDS" in os.environ:
        return numbered
    return [(number, at) for number, at in numbered if number % 3 == 0 or at not in points[: number - 1]]


@pytest.mark.parametrize("name", COURSES)
def test_a_death_at_any_point_changes_nothing_of_how_the_course_ends(name: str) -> None:
    for number, point in struck(points_of(name)):
        with closing(World(COURSES[name], dies_at=number)) as world:
            try:
                world.play()
            except AssertionError as error:
                error.add_note(f"again: python -m tests.sim 1 --course {name!r} --dies-at {number} ({point})")
                raise
            assert len(world.record.deaths) == 1, f"{point} was not reached"


def test_the_points_are_of_every_kind() -> None:
    kinds = set(points_of("approval"))
    for service, database in (("agent", "runs.db"), ("gateway", "ledger.db")):
        assert {f"{service}: commit to {database}", f"{service}: an acknowledgement"} <= kinds
    assert {"agent: agentic.tool_request.append", "gateway: POST /plugin/append/handle"} <= kinds
