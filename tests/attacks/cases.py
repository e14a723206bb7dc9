"""Cases of docs/SECURITY.md, and the tests that each names."""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "SECURITY.md"
ALL = 126
_ROW = re.compile(r"^\| (\d+) \| [^|]+ \| [^|]+ \|([^|]*)\|$", re.MULTILINE)


def rows() -> list[tuple[int, list[str]]]:
    """Returns number and tests of each case, in the order of the page. A test is named as
    `attacks/test_api.py::test_…`."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [(int(number), re.findall(r"`([^`]+)`", tests)) for number, tests in found]


def by_test() -> Mapping[str, frozenset[int]]:
    found = defaultdict(set)
    for number, tests in rows():
        for test in tests:
            found[test].add(number)
    return {test: frozenset(numbers) for test, numbers in found.items()}
