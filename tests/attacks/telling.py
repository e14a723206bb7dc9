"""The table that `make attack` prints: a plugin of pytest (`-p tests.attacks.telling`)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.attacks import cases

PROPERTY = "attack"
HELD = {"passed": "held", "failed": "BROKEN", "skipped": "not tried"}
CONTROL = {"passed": "falls", "failed": "WITHSTANDS", "skipped": "not tried"}
WIDTH = 92


@dataclass(slots=True)
class Row:
    """One attack: what came of it, on each side on which it was made."""

    cases: list[int]
    outcome: dict[str, str] = field(default_factory=dict)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m attack` chooses: what a case of docs/SECURITY.md names is an attack too."""
    named = cases.by_test()
    for item in items:
        numbers = named.get(item.nodeid.removeprefix("tests/").partition("[")[0], ())
        if numbers:
            item.add_marker(pytest.mark.attack(*numbers))
        if marks := list(item.iter_markers("attack")):
            all_of_them = sorted({case for mark in marks for case in mark.args})
            item.user_properties.append((PROPERTY, [*_named(item), all_of_them]))


def _named(item: pytest.Item) -> Iterator[str]:
    """The name of the attack, and the side on which it is made."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    side = str(params.get("side", "ours"))
    ids = getattr(getattr(item, "callspec", None), "id", "").split("-")
    variant = "-".join(part for part in ids if "side" not in params or part != side)
    room = item.path.stem.removeprefix("test_").replace("_", " ")
    name = getattr(item, "originalname", item.name).removeprefix("test_").replace("_", " ")
    yield f"{room}: {name}" + f" [{variant}]" * bool(variant)
    yield side


class Table:
    """Gathers outcomes as they come in, also from other workers."""

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
        terminalreporter.write_line(self.tried())
        terminalreporter.write_line(self.verdict())

    def tried(self) -> str:
        """How many of the cases were tried."""
        tried = {case for row in self.rows.values() if row.outcome.get("ours") != "skipped" for case in row.cases}
        left = sorted(set(range(1, cases.ALL + 1)) - tried)
        return f"{cases.ALL - len(left)} of {cases.ALL} cases tried" + f", not {', '.join(map(str, left))}" * bool(left)

    def verdict(self) -> str:
        """The last line."""
        ours = [row.outcome["ours"] for row in self.rows.values() if "ours" in row.outcome]
        twin = [row.outcome["twin"] for row in self.rows.values() if "twin" in row.outcome]
        kinds = {name.partition(" [")[0] for name in self.rows}
        held, broken, untried = (ours.count(outcome) for outcome in HELD)
        told = f"{held} held, {broken} broke through, {untried} not tried"
        fell = f"{twin.count('passed')} of {len(twin)} unprotected twins fell"
        return f"{len(ours)} attacks of {len(kinds)} kinds: {told}; {fell}"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Table(), "table-of-attacks")
