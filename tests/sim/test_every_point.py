"""Every course with a death at each of its points ends as it would have without.

A point is an effect on the world: a message, an acknowledgement, a request, a commit. Processes die before it.
"""

from contextlib import closing

import pytest

from tests.sim.courses import COURSES
from tests.sim.deaths import Deaths
from tests.sim.world import World


@pytest.mark.parametrize("name", COURSES)
def test_a_death_at_any_point_changes_nothing_of_how_the_course_ends(name: str) -> None:
    with closing(World(COURSES[name])) as world:
        flaws = [one.flaw for one in Deaths(world).play() if one.flaw]
    assert not flaws, "\n".join([*flaws, f"again: python -m tests.sim 1 --course {name!r} --dies-at NUMBER"])


def test_the_points_are_of_every_kind() -> None:
    with closing(World(COURSES["approval"])) as world:
        world.play()
        kinds = {*world.boundary.effects}
    for service, database in (("agent", "runs.db"), ("gateway", "ledger.db")):
        assert {f"{service}: commit to {database}", f"{service}: an acknowledgement"} <= kinds
    assert {"agent: agentic.tool_request.append", "gateway: POST /plugin/append/handle"} <= kinds
