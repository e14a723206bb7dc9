"""Makes tests of attempts, each against our program and its unprotected twin."""

from collections.abc import Mapping
from typing import Any, Protocol

import pytest

SIDES = ("ours", "twin")


class Target(Protocol):
    @property
    def protected(self) -> bool:
        """True for our program, False for the twin."""


def rows(table: Mapping[str, tuple[tuple[int, ...], Any]]) -> list[Any]:
    """Returns test parameters from a table: name of the attempt, its cases of docs/SECURITY.md, and how it is made."""
    return [pytest.param(how, id=name, marks=pytest.mark.attack(*cases)) for name, (cases, how) in table.items()]


def judge(target: Target, got: Mapping[str, object]) -> None:
    """Checks that each attempt failed on ours and succeeded on the unprotected twin."""
    if target.protected:
        through = {name: loot for name, loot in got.items() if loot}
        assert through == {}, "the attacker got this"
    else:
        assert [name for name, loot in got.items() if not loot] == [], "the twin withstood this: it is no attack"
