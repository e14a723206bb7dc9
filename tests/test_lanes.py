"""The selected tests of a push exist."""

from tests.lanes import ROOM, TESTS, names_of


def test_every_test_that_a_push_waits_for_is_one_that_pytest_collects() -> None:
    chosen = [test.partition("::") for test in TESTS]
    names = [(file, name.partition("[")[0]) for file, _, name in chosen]
    assert [(file, name) for file, name in names if name and name not in names_of(ROOM / file)] == []
