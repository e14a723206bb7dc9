"""Cases of docs/SECURITY.md with the tests that each names, and a pytest plugin that prints the table of `make attack`
(`-p tests.attacks.report`)."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "SECURITY.md"
CASES = 126
CASE = re.compile(r"^\| (\d+) \| [^|]+ \| [^|]+ \|([^|]*)\|$", re.MULTILINE)
PROPERTY = "attack"
HELD = {"passed": "held", "failed": "BROKEN", "skipped": "not tried"}
CONTROL = {"passed": "falls", "failed": "WITHSTANDS", "skipped": "not tried"}
WIDTH = 92


def cases() -> list[tuple[int, list[str]]]:
    """Returns number and tests of each case, in the order of the page. A test is named as
    `attacks/test_api.py::test_…`."""
    found = CASE.findall(PAGE.read_text(encoding="utf-8"))
    return [(int(number), re.findall(r"`([^`]+)`", tests)) for number, tests in found]


def cases_of_tests() -> Mapping[str, set[int]]:
    found = defaultdict(set)
    for number, tests in cases():
        for test in tests:
            found[test].add(number)
    return found


@dataclass(slots=True)
class Row:
    cases: list[int]
    outcome: dict[str, str] = field(default_factory=dict)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests named by a case of docs/SECURITY.md as attacks, before `-m attack` selects."""
    named = cases_of_tests()
    for item in items:
        numbers = named.get(item.nodeid.removeprefix("tests/").partition("[")[0], ())
        if numbers:
            item.add_marker(pytest.mark.attack(*numbers))
        if marks := list(item.iter_markers("attack")):
            all_of_them = sorted({case for mark in marks for case in mark.args})
            item.user_properties.append((PROPERTY, [*_named(item), all_of_them]))


def _named(item: pytest.Item) -> tuple[str, str]:
    """Name of the attack, and the side that it attacks."""
    side = str(getattr(getattr(item, "callspec", None), "params", {}).get("side", "ours"))
    name = item.nodeid.removeprefix("tests/").replace(".py::test_", ": ").replace("_", " ")
    return name.replace(f"-{side}]", "]").replace(f"[{side}-", "[").replace(f"[{side}]", ""), side


class Table:
    """Collects outcomes as they come in, also from other workers."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: Any = dict(report.user_properties).get(PROPERTY)
        if not found or (report.when != "call" and report.passed):
            return
        name, side, numbers = found
        row = self.rows.setdefault(str(name), Row(list(numbers)))
        if row.outcome.get(side) != "failed":
            row.outcome[side] = report.outcome

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("attacks")
        for name, row in sorted(self.rows.items()):
            ours, twin = HELD[row.outcome.get("ours", "skipped")], CONTROL.get(row.outcome.get("twin", ""), "-")
            numbers = " ".join(map(str, row.cases))
            terminalreporter.write_line(f"{name[:WIDTH]:{WIDTH}}  {numbers:12}  {ours:9}  {twin}")
        terminalreporter.write_line(self.verdict())

    def verdict(self) -> str:
        """Last line of the table, and how many of the cases were tried."""
        ours = [row.outcome["ours"] for row in self.rows.values() if "ours" in row.outcome]
        twin = [row.outcome["twin"] for row in self.rows.values() if "twin" in row.outcome]
        tried = {case for row in self.rows.values() if row.outcome.get("ours") != "skipped" for case in row.cases}
        held, broken, untried = (ours.count(outcome) for outcome in HELD)
        told = f"{len(ours)} attacks: {held} held, {broken} broke through, {untried} not tried"
        fell = f"{twin.count('passed')} of {len(twin)} unprotected twins fell"
        return f"{told}; {fell}; {len(tried)} of {CASES} cases tried"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Table(), "table-of-attacks")
