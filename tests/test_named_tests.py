"""Tests that docs/SECURITY.md and the selection of a push name exist, with the rows of their tables."""

from pathlib import Path

from tests.attacks.report import ALL, cases, cases_of_tests
from tests.lanes import ROOM, TESTS, names_of


def test_every_case_stands_there_once_in_order_and_names_a_test() -> None:
    assert [number for number, _ in cases()] == list(range(1, ALL + 1))
    assert [number for number, tests in cases() if not tests] == []


def test_every_test_that_a_case_or_a_push_names_is_one_that_pytest_collects() -> None:
    assert [test for test in sorted(cases_of_tests()) if not _is_there(test, whole=True)] == []
    assert [test for test in TESTS if "::" in test and not _is_there(test)] == []


def _is_there(test: str, *, whole: bool = False) -> bool:
    """`whole`: with the row of its table."""
    file, _, name = test.partition("::")
    function, _, row = name.rstrip("]").partition("[")
    there = Path(file).name.startswith("test_") and function in names_of(ROOM / file)
    return there and f'"{row}' in (ROOM / file).read_text(encoding="utf-8") if row and whole else there
