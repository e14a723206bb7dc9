"""Answers of a script that no run could use, as far as that can be told before there is one.

A run tells them, too, but only once it asks: as decisions to be repaired, of which a script makes the same ones again.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from agent_service.core.phases import Framing, Phase, Reflection, Wait
from agent_service.core.proof import FOLDER, PERSON, STEP, places_in
from agent_service.core.timing import flaws_of_instant
from agent_service.models.scripted_model import DECISIONS, Rule, Script

_SERVE = {
    Phase.FRAME: ("frame", "ask", "reflect"),
    Phase.PLAN: ("plan", "ask", "wait", "reflect"),
    Phase.REFLECT: ("reflect", "digest"),
    Phase.COMPACT: ("digest", "reflect"),
    Phase.VERIFY: ("verify",),
}
"""The answers that a question of that phase can have, besides `unusable` and `fault`. Before there is a next action a
reflection can only escalate."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def unusable(script: Script) -> Iterator[str]:
    for number, rule in enumerate(script.rules):
        given = {name: getattr(rule, name) for name in (*DECISIONS, "digest") if getattr(rule, name) is not None}
        if given and (flaw := _misplaced(rule, given)):
            yield f"rules.{number}: {flaw}"
        for name, answer in given.items():
            if name in DECISIONS:
                yield from (f"rules.{number}.{name}: {flaw}" for flaw in _flaws(name, answer))


def _misplaced(rule: Rule, given: dict[str, Any]) -> str:
    serve = _SERVE[rule.phase]
    first = next(iter(given)) if len(given) == 1 else next(name for name in ("frame", "reflect") if name in given)
    if first not in serve:
        return f"`{first}` answers no question of phase {rule.phase}: give {', '.join((*serve, 'unusable or fault'))}"
    if first == "reflect" and rule.phase in (Phase.FRAME, Phase.PLAN) and given[first]["verdict"] != "escalate":
        return f"in phase {rule.phase} the only verdict of `reflect` is escalate"
    return ""


def _flaws(name: str, answer: dict[str, Any]) -> Iterator[str]:
    match DECISIONS[name].validate_python(answer):
        case Framing() as framing:
            yield from framing.flaws()
        case Wait() as wait:
            yield from flaws_of_instant(wait, _EARLIEST)
        case Reflection(met=claims):
            for number, claim in enumerate(claims):
                if not _names_a_place(claim.evidence):
                    yield f"met.{number}: evidence is `step:2`, the path of an artifact ({FOLDER}…) or `person`"


def _names_a_place(evidence: str) -> bool:
    places = places_in(evidence, ())
    return "$" in evidence or any(one == PERSON or one.startswith((STEP, FOLDER)) or "." in one for one in places)
