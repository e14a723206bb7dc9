"""What makes a strike a test, on our program and on an unprotected twin of it."""

from collections.abc import Mapping
from typing import Any, Protocol

import pytest

SIDES = ("ours", "twin")


class Target(Protocol):
    """What is attacked."""

    @property
    def protected(self) -> bool:
        """Whether it is ours, and not the twin."""


def rows(table: Mapping[str, tuple[tuple[int, ...], Any]]) -> list[Any]:
    """Parameters of the rows of a table: what is tried, with its cases of docs/SECURITY.md and how it is done."""
    return [pytest.param(how, id=name, marks=pytest.mark.attack(*cases)) for name, (cases, how) in table.items()]


def judge(target: Target, got: Mapping[str, object]) -> None:
    """Each attempt got nothing of ours, and something of the unprotected twin."""
    if target.protected:
        through = {name: loot for name, loot in got.items() if loot}
        assert through == {}, "the attacker got this"
    else:
        assert [name for name, loot in got.items() if not loot] == [], "the twin withstood this: it is no attack"
