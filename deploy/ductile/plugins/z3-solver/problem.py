"""The problem to solve: declarations and named constraints, from SMT-LIB, JSON, or lines of text."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formula import formula
from smtlib import Term, script, written

MOST_CONSTRAINTS, MOST_VARIABLES, LONGEST_SCRIPT, LONGEST_SHOWN = 500, 500, 50_000, 200
SORTS = {"int": "Int", "real": "Real", "bool": "Bool"}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
SMTLIB = re.compile(r"^\s*\((declare|define|assert|set)-?", re.MULTILINE)
DECLARATION = re.compile(rf"({'|'.join(SORTS)})\s+(.+)")
LABELLED = re.compile(rf"({NAME.pattern})\s*:\s+(.+)")


@dataclass(frozen=True)
class Constraint:
    """`source`: the text of the caller."""

    name: str
    source: str
    term: Term

    def __str__(self) -> str:
        return f"{self.name}: {shortened(self.source)}"


@dataclass(frozen=True)
class Problem:
    """`declared`: SMT-LIB commands."""

    declared: str
    constraints: tuple[Constraint, ...]

    def with_changed(self, changed: Constraint) -> "Problem":
        """Returns the problem with the constraint of this name replaced."""
        kept = tuple(changed if one.name == changed.name else one for one in self.constraints)
        return replace(self, constraints=kept)


def problem_of(payload: Mapping[str, Any]) -> Problem:
    """Returns the problem in the arguments. Raises ValueError."""
    forms = [name for name in ("smt2", "constraints", "input") if name in payload]
    if len(forms) != 1:
        raise ValueError("give the problem in one form: smt2, constraints (with variables), or input")
    if forms == ["constraints"]:
        return _of_json(payload.get("variables", {}), payload["constraints"])
    text = payload[forms[0]]
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_SCRIPT:
        raise ValueError(f"{forms[0]} must be a text of at most {LONGEST_SCRIPT} characters")
    return _of_script(text) if forms == ["smt2"] or SMTLIB.search(text) else _of_lines(text)


def shortened(text: str) -> str:
    """Returns the text in one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN]}…"


def _of_script(text: str) -> Problem:
    declared, assertions = script(text)
    named = ((name, written(term), term) for name, term in assertions)
    return _checked(map(written, declared), named)


def _of_json(variables: object, constraints: object) -> Problem:
    if isinstance(variables, dict) and isinstance(constraints, list):
        return _checked(_declared(variables.items()), [_given(one) for one in constraints])
    raise ValueError("variables must be an object of names and types, constraints a list")


def _given(constraint: object) -> tuple[str | None, str, Term]:
    match constraint:
        case str() as source:
            return None, source, formula(source)
        case {"expr": str() as source, **others} if others.keys() <= {"name"}:
            name = others.get("name")
            if name is not None and not isinstance(name, str):
                raise ValueError(f"the name of {source!r} must be a text")
            return name, source, formula(source)
    raise ValueError('a constraint is a text such as "cost <= 100", or {"name": "budget", "expr": "cost <= 100"}')


def _of_lines(text: str) -> Problem:
    variables: list[tuple[str, str]] = []
    constraints: list[tuple[str | None, str, Term]] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        try:
            if declaration := DECLARATION.fullmatch(line):
                variables += [(name, declaration[1]) for name in re.split(r"[,\s]+", declaration[2])]
            elif line and not line.startswith("#"):
                label = LABELLED.fullmatch(line)
                source = label[2] if label else line
                constraints.append((label[1] if label else None, source, formula(source)))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return _checked(_declared(variables), constraints)


def _declared(variables: Iterable[tuple[str, object]]) -> Iterator[str]:
    for name, kind in variables:
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"{name[:64]!r} cannot be the name of a variable: letters, digits and _")
        if kind not in SORTS:
            raise ValueError(f"the variable {name} must be one of {', '.join(SORTS)}")
        yield f"(declare-const {name} {SORTS[str(kind)]})"


def _checked(declared: Iterable[str], given: Iterable[tuple[str | None, str, Term]]) -> Problem:
    constraints = tuple(_labelled(list(given)))
    declarations = list(declared)
    if not constraints:
        raise ValueError("there is no constraint to solve")
    if len(constraints) > MOST_CONSTRAINTS or len(declarations) > MOST_VARIABLES:
        raise ValueError(f"at most {MOST_CONSTRAINTS} constraints and {MOST_VARIABLES} declarations are taken")
    return Problem("\n".join(declarations), constraints)


def _labelled(given: Sequence[tuple[str | None, str, Term]]) -> Iterator[Constraint]:
    """Names constraints without a name by their positions."""
    names = Counter(name for name, _, _ in given if name is not None)
    for name, times in names.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:64]!r} cannot be the name of a constraint: letters, digits, _ . and -")
        if times > 1:
            raise ValueError(f"{times} constraints are called {name}")
    for number, (named, source, term) in enumerate(given, 1):
        by_place = f"c{number}" if f"c{number}" not in names else f"constraint-{number}"
        yield Constraint(named or by_place, source, term)
