"""Every case of docs/SECURITY.md names tests that there are."""

from pathlib import Path

from tests.attacks import cases
from tests.lanes import names_of

TESTS = Path(__file__).parent


def test_every_case_stands_there_once_and_in_order() -> None:
    assert [number for number, _ in cases.rows()] == list(range(1, cases.ALL + 1))


def test_every_case_names_a_test() -> None:
    assert [number for number, tests in cases.rows() if not tests] == []


def test_every_test_that_a_case_names_is_one_that_pytest_collects() -> None:
    named = [test.partition("::") for test in sorted(cases.by_test())]
    assert [
        f"{file}::{name}"
        for file, _, name in named
        if not Path(file).name.startswith("test_") or name not in names_of(TESTS / file)
    ] == []
