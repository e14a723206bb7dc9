"""Facts: what a run learned, each said once, with every step that showed it.

A fact that only names another source is no other fact: the source is added to the one that is known.
"""

import re

from agent_service.core.notes import MAX_FACT

MOST = 100
"""Of a run; the newest are kept."""
_SOURCE = re.compile(r"\(\s*steps?\b[^()]*\)", re.IGNORECASE)


def with_new(known: tuple[str, ...], learned: tuple[str, ...]) -> tuple[str, ...]:
    """`known` and what is new."""
    if not learned:
        return known
    facts = {_said(fact): fact for fact in known}
    for fact in (fact[:MAX_FACT] for fact in learned):
        said = _said(fact)
        facts[said] = _with_source(facts[said], fact) if said in facts else fact
    return tuple(facts.values())[-MOST:]


def _said(fact: str) -> str:
    return " ".join(_SOURCE.sub("", fact).casefold().split()).rstrip(".;! ")


def _with_source(fact: str, again: str) -> str:
    sourced = " ".join((fact, *(source for source in _SOURCE.findall(again) if source not in fact)))
    return sourced if len(sourced) <= MAX_FACT else fact
