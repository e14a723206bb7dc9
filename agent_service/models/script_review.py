"""What is wrong with a script, and advice on one that can be used."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any

from agent_service.core.model.planning import flaws_of_instant
from agent_service.core.phases import Framing, Phase, Reflection, Wait
from agent_service.core.proof import FOLDER, PERSON, STEP, places_in
from agent_service.models.scripted_model import ANSWERS, DECISIONS, NAMES, Condition, Rule, Script, read_script
from groundwork.service.errors import Misconfigured
from schemas.values import dataclass

_SERVE: dict[str, tuple[str, ...]] = {
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
            yield from map(str, framing.flaws())
        case Wait() as wait:
            yield from map(str, flaws_of_instant(wait, _EARLIEST))
        case Reflection(met=claims):
            for number, claim in enumerate(claims):
                if not _names_a_place(claim.evidence):
                    yield f"met.{number}: evidence is `step:2`, the path of an artifact ({FOLDER}…) or `person`"


def _names_a_place(evidence: str) -> bool:
    places = places_in(evidence, ())
    return "$" in evidence or any(one == PERSON or one.startswith((STEP, FOLDER)) or "." in one for one in places)


NEEDED = (Phase.FRAME, Phase.PLAN, Phase.REFLECT)


@dataclass(frozen=True, slots=True)
class Review:
    """`script`: None where it cannot be used. `advice`: does not keep it from being used."""

    file: Path
    script: Script | None = None
    flaws: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def told(self) -> str:
        if self.script is None or self.flaws:
            return "\n".join(f"✗ {self.file}: {flaw}" for flaw in self.flaws)
        counted = ", ".join(f"{number} {phase}" for phase, number in _by_phase(self.script).items())
        usable = f"✓ {self.file}: {self.script.name}, {len(self.script.rules)} rules ({counted})"
        return "\n".join((usable, *(f"! {self.file}: {advice}" for advice in self.advice)))


def review(file: Path) -> Review:
    try:
        script = read_script(file)
    except Misconfigured as error:
        return Review(file, flaws=tuple(str(error).removeprefix(f"script {file}").lstrip(": ").split("; ")))
    return Review(file, script, tuple(unusable(script)), tuple(_advice(script)))


def _advice(script: Script) -> Iterator[str]:
    phases = _by_phase(script)
    for phase in NEEDED:
        if phase not in phases:
            yield f"no rule of phase {phase}: a run that asks for one ends there (`script_ends`)"
    for number, rule in enumerate(script.rules):
        if (always := _always_before(script, number)) is not None:
            yield f"rules.{number} is never used: rules.{always} answers every {rule.phase}"
        for name in sorted(_names_in(_answers(rule)) - _known(rule)):
            yield f"rules.{number}: ${name} stands for nothing: there are {', '.join(f'${one}' for one in NAMES)}"


def _by_phase(script: Script) -> dict[str, int]:
    counted: dict[str, int] = {}
    for rule in script.rules:
        counted[rule.phase] = counted.get(rule.phase, 0) + 1
    return counted


def _always_before(script: Script, number: int) -> int | None:
    phase, earlier = script.rules[number].phase, enumerate(script.rules[:number])
    return next((at for at, rule in earlier if rule.phase == phase and rule.when == Condition()), None)


def _answers(rule: Rule) -> list[Any]:
    return [getattr(rule, name) for name in ANSWERS]


def _known(rule: Rule) -> set[str]:
    return {*NAMES, *(rule.when.goal.groupindex if rule.when.goal else ())}


def _names_in(node: Any) -> set[str]:
    if isinstance(node, str):
        return set(Template(node).get_identifiers())
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
    return set().union(*map(_names_in, inner))
