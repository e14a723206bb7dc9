"""Every sown bug breaks a rule that it is known to break, within so many schedules."""

from contextlib import closing

import pytest

from tests.sim.bugs import BUGS, Bug
from tests.sim.courses import COURSES
from tests.sim.deaths import Deaths
from tests.sim.world import World


def found(bug: Bug) -> tuple[int, str]:
    """How many schedules it took, and the rule that was broken: a death at each point, and at last none."""
    with closing(World(COURSES[bug.course])) as world:
        bug.sow(world)
        played = list(Deaths(world, to_the_first=True).play())
        return len(played), next((one.rule for one in played if one.rule), "")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_sown_bug_breaks_a_rule(bug: Bug) -> None:
    _, rule = found(bug)
    assert rule in bug.breaks
