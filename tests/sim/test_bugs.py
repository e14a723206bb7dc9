"""Every sown bug breaks a rule that it is known to break, within so many schedules."""

import pytest

from tests.sim.bugs import BUGS, Bug, found


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_sown_bug_breaks_a_rule(bug: Bug) -> None:
    _, rule = found(bug)
    assert rule in bug.breaks
