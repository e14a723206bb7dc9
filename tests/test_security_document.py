"""Every case of docs/SECURITY.md names tests that there are."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CASES = 126
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| [^|]+ \|([^|]*)\|$", re.MULTILINE)
ROWS = ROW.findall((TESTS.parent / "docs" / "SECURITY.md").read_text(encoding="utf-8"))
NAMED = sorted({test for _, tests in ROWS for test in re.findall(r"`([^`]+)`", tests)})


def test_every_case_stands_there_once_and_in_order() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, CASES + 1))


@pytest.mark.parametrize("test", NAMED)
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
