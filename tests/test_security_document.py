"""Every case of docs/SECURITY.md names tests that there are."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.attacks import cases

TESTS = Path(__file__).parent


def test_every_case_stands_there_once_and_in_order() -> None:
    assert [number for number, _ in cases.rows()] == list(range(1, cases.ALL + 1))


def test_every_case_names_a_test() -> None:
    assert [number for number, tests in cases.rows() if not tests] == []


@pytest.mark.parametrize("test", sorted(cases.by_test()))
def test_a_test_that_a_case_names_is_one_that_pytest_collects(test: str) -> None:
    file, _, name = test.partition("::")
    assert Path(file).name.startswith("test_")
    assert name in names_of(TESTS / file)


@cache
def names_of(file: Path) -> frozenset[str]:
    """The tests of a file: it is read and not run, for without a browser those of the page are skipped."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    top = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(made.name for made in top if isinstance(made, functions) and made.name.startswith("test_"))
