"""Every case of docs/SECURITY.md names existing tests and existing rows of their tables."""

from pathlib import Path

from tests.attacks import cases
from tests.lanes import names_of

TESTS = Path(__file__).parent


def test_every_case_stands_there_once_in_order_and_names_a_test() -> None:
    assert [number for number, _ in cases.rows()] == list(range(1, cases.ALL + 1))
    assert [number for number, tests in cases.rows() if not tests] == []


def test_every_test_that_a_case_names_is_one_that_pytest_collects() -> None:
    assert [test for test in sorted(cases.by_test()) if not _is_there(test)] == []


def _is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    function, _, row = name.rstrip("]").partition("[")
    there = Path(file).name.startswith("test_") and function in names_of(TESTS / file)
    return there and f'"{row}' in (TESTS / file).read_text(encoding="utf-8") if row else there
