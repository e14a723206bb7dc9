"""Invariants of every story: each rule is a function that a story passes or breaks.

Rules compare events with published messages, independently of the code of the core; they look into a state only to
compare it with what was published. Every function here that takes a story and returns nothing is a rule.
"""

from collections.abc import Callable
from inspect import isfunction, signature

from tests.core.rules import deciding, notes, order, people, spending, steps
from tests.core.rules.reading import Story

Rule = Callable[[Story], None]


def is_rule(value: object) -> bool:
    if not isfunction(value):
        return False
    said = signature(value)
    return said.return_annotation is None and [p.annotation for p in said.parameters.values()] == [Story]


RULES: tuple[Rule, ...] = tuple(
    value
    for room in (order, steps, spending, deciding, people, notes)
    for value in vars(room).values()
    if is_rule(value) and value.__module__ == room.__name__
)
