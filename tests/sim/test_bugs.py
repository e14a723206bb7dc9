"""Every sown bug breaks a rule that it is known to break, within so many schedules."""

from itertools import chain

import pytest

from tests.sim.bugs import BUGS, Bug
from tests.sim.courses import COURSES
from tests.sim.invariants import Violation
from tests.sim.world import World

MOST_SCHEDULES = 200


def found(bug: Bug) -> tuple[int, str]:
    """After how many schedules, and by which rule: at first without a death, then with one at each point."""
    for number, dies_at in enumerate(chain([None], range(1, MOST_SCHEDULES)), start=1):
        world = World(COURSES[bug.course], number, dies_at=dies_at)
        bug.sow(world)
        try:
            world.play()
        except Violation as violation:
            return number, violation.rule
        finally:
            world.close()
        if dies_at and not world.record.deaths:
            break
    return number, ""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_sown_bug_breaks_a_rule(bug: Bug) -> None:
    _, rule = found(bug)
    assert rule in bug.breaks
