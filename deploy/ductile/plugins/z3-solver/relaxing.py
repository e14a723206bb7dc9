"""Relaxes constraints as the evidence offers, and no more of them than needed.

An offer is a line of a page, in a list or not: `relax: cost <= 10000 -> cost <= 11000`, or by the constraint's name:
`relax: budget -> cost <= 11000`. It applies only to a constraint that is part of a contradiction.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from formula import formula, same
from problem import Constraint, Problem, shortened
from smtlib import Term
from solving import CannotSolve, Verdict

MOST_TEXT, MOST_OFFERS, MOST_CHANGES = 200_000, 200, 20
OFFER = re.compile(r"[\s>*+-]*`?relax:\s*(?P<old>\S.*?)\s*(?:->|→)\s*(?P<new>\S.*?)`?\s*", re.IGNORECASE)
PLACE = re.compile(r"\[\d+\] (\S.{0,200})")
"""Heading of a section in results of the plugin knowledge."""

Solve = Callable[[Problem], Verdict]


@dataclass(frozen=True)
class Offer:
    """`by`: its source."""

    old: str
    new: str
    by: str


@dataclass(frozen=True)
class Change:
    """A relaxed constraint, before and after, and the source that allows it."""

    was: Constraint
    now: Constraint
    by: str

    def __str__(self) -> str:
        return f"{self.was.name}: {shortened(self.was.source)} became {shortened(self.now.source)} (by {self.by})"


@dataclass(frozen=True)
class Relaxed:
    """Result of relaxing: the problem now, its verdict, the changes, and unusable offers."""

    problem: Problem
    verdict: Verdict
    changes: tuple[Change, ...] = ()
    unusable: tuple[str, ...] = ()


def offers_of(evidence: Iterable[dict[str, Any]]) -> list[Offer]:
    """Returns the offers in the evidence, in order, each once."""
    found: dict[tuple[str, str], Offer] = {}
    for offer in (offer for one in evidence if one.get("status") == "ok" for offer in _offers_in(one)):
        found.setdefault((offer.old, offer.new), offer)
    return list(found.values())[:MOST_OFFERS]


def relax(problem: Problem, offers: Iterable[Offer], solve: Solve, *, fixed: frozenset[str]) -> Relaxed:
    """Relaxes constraints of the contradiction one by one, until it is solved or no offer is left.

    `fixed`: names of constraints that must stay. Raises CannotSolve."""
    reached, left = Relaxed(problem, solve(problem)), list(offers)
    while reached.verdict.status == "unsat" and len(reached.changes) < MOST_CHANGES:
        offered = _first_offered(reached, left, fixed)
        if offered is None:
            break
        offer, was = offered
        left.remove(offer)
        reached = _try(reached, offer, was, solve)
    return reached


def _first_offered(reached: Relaxed, offers: list[Offer], fixed: frozenset[str]) -> tuple[Offer, Constraint] | None:
    core = [one for one in reached.problem.constraints if one.name in reached.verdict.core and one.name not in fixed]
    return next(((offer, one) for offer in offers for one in core if _is_of(offer, one)), None)


def _is_of(offer: Offer, constraint: Constraint) -> bool:
    old = _read(offer.old)
    return offer.old == constraint.name or (old is not None and same(old, constraint.term))


def _try(reached: Relaxed, offer: Offer, was: Constraint, solve: Solve) -> Relaxed:
    """Applies an offer. One that is no constraint, or names unknown variables, becomes unusable."""
    new = _read(offer.new)
    if new is None:
        return replace(reached, unusable=(*reached.unusable, offer.new))
    now = replace(was, source=offer.new, term=new)
    changed = reached.problem.with_changed(now)
    try:
        verdict = solve(changed)
    except CannotSolve as error:
        if error.error_class != "invalid_arguments":
            raise
        return replace(reached, unusable=(*reached.unusable, offer.new))
    return replace(reached, problem=changed, verdict=verdict, changes=(*reached.changes, Change(was, now, offer.by)))


def _read(text: str) -> Term | None:
    try:
        return formula(text)
    except ValueError:
        return None


def _offers_in(one: dict[str, Any]) -> Iterator[Offer]:
    by = ", ".join(str(one[name])[:64] for name in ("tool", "task") if one.get(name))
    place = ""
    for line in "\n".join(_texts(one.get("result")))[:MOST_TEXT].splitlines():
        if section := PLACE.fullmatch(line):
            place = f"{section[1]}; "
        elif offer := OFFER.fullmatch(line):
            yield Offer(offer["old"].strip("` "), offer["new"], f"{place}{by}")


def _texts(value: object) -> Iterator[str]:
    """Yields all texts in a tool's result, its summary first."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name in sorted(value, key=lambda name: name != "summary"):
            yield from _texts(value[name])
