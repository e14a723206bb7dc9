"""Every sown bug breaks one of its rules within a number of schedules."""

import pytest

from tests.sim.bugs import BUGS, Bug, found


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_sown_bug_breaks_a_rule(bug: Bug) -> None:
    _, rule = found(bug)
    assert rule in bug.breaks
