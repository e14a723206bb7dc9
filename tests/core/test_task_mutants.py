"""Bugs sown into continuations, each of which the walk through random trees has to find."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from agent_service.core.graph import coming_next, continuing, gathered
from agent_service.core.tools import correlate
from agent_service.core.tools.attempts import Gathering as Gathered
from agent_service.core.tools.attempts import Task
from tests.core.bugs import Bug, always, before, behind
from tests.core.gathering import Chances, Gathering, a_tree, check, play

ENOUGH = 60
"""Trees that are walked in search of a bug."""
WIDE = Chances(fails=20, ends_badly=20, depends=40, continues=20)


def without_needs(gathering: Gathered, task: Task, came: Any) -> tuple[Any, ...]:
    """A task that depends on nothing."""
    return gathering, replace(task, needs=()), came


def forgetful(handed: Any) -> Any:
    """What is handed on, without the last of it."""
    return handed[:-1]


BUGS = (
    Bug("a task does not wait for what it depends on", coming_next, "_nothing_before", before(without_needs)),
    Bug("any number of requests is under way", coming_next, "_has_room", always(True)),
    Bug("nothing is ever asked", coming_next, "_has_room", always(False)),
    Bug("a failed task fails nothing", continuing, "flaw_of", always(None)),
    Bug("what was answered is taken for what was never asked", correlate, "_was_sent", always(False)),
    Bug("a part of the evidence is left out", gathered, "_handed", behind(forgetful)),
    Bug("evidence comes in the order of arrival", gathered, "_in_order", lambda _: list),
)


@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.what) for bug in BUGS])
def test_some_tree_shows_that(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug.where, bug.name, bug.sow(getattr(bug.where, bug.name)))
    assert any(is_shown_by(number) for number in range(ENOUGH))


def is_shown_by(number: int) -> bool:
    """Whether the walk through tree `number` ends in a broken rule, or in a fault of the program."""
    chance = Random(number)  # noqa: S311 - it makes trees, no secrets
    root = a_tree(chance, (chance.randint(4, 12), chance.randint(1, 6)), WIDE)
    try:
        gathering = Gathering(root)
        play(gathering, chance, loses=number % 2 == 1)
        assert gathering.executor.most_open <= 4
        check(gathering, root)
    except (AssertionError, ValueError, StopIteration, KeyError):
        return True
    return False


def test_no_tree_shows_a_bug_where_there_is_none() -> None:
    assert not [number for number in range(ENOUGH) if is_shown_by(number)]
