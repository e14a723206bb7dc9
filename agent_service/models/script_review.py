"""What is wrong with a script, and advice on one that can be used."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from string import Template
from typing import Any

from agent_service.core.model.planning import flaws_of_instant
from agent_service.core.phases import Framing, Phase, Reflection, Wait
from agent_service.core.proof import FOLDER, PERSON, STEP, places_in
from agent_service.models.scripted_model import ANSWERS, DECISIONS, NAMES, NEXT, Condition, Rule, Script, read_script
from groundwork.service.errors import Misconfigured
from groundwork.service.strict import NotYaml, parse
from schemas.argument_schemas import argument_flaws, validator_of

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
MOST_FLAWS = 20
REFERENCE = "#/$defs/{model}"

Schema = dict[str, Any]


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
        document = parse(file.read_text(encoding="utf-8"))
    except (Misconfigured, NotYaml) as error:
        return Review(file, flaws=tuple(str(error).removeprefix(f"script {file}").lstrip(": ").split("; ")))
    found = argument_flaws(validator_of(_schema()), json.loads(json.dumps(document, default=str)), most=MOST_FLAWS)
    flaws = (*map(_placed, found), *unusable(script))
    return Review(file, script, flaws, tuple(_advice(script)))


def _placed(flaw: str) -> str:
    place, _, told = flaw.partition(": ")
    return f"{place.replace('/', '.')}: {told}"


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
    return next((at for at, rule in earlier if rule.phase is phase and rule.when == Condition()), None)


def _answers(rule: Rule) -> list[Any]:
    return [getattr(rule, name) for name in ANSWERS]


def _known(rule: Rule) -> set[str]:
    return {*NAMES, *(rule.when.goal.groupindex if rule.when.goal else ())}


def _names_in(node: Any) -> set[str]:
    if isinstance(node, str):
        return set(Template(node).get_identifiers())
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
    return set().union(*map(_names_in, inner))


def _schema() -> Schema:
    whole = Script.model_json_schema(ref_template=REFERENCE)
    shapes = whole["$defs"]
    rule = shapes["Rule"]
    for name, shape in DECISIONS.items():
        decision = shape.json_schema(ref_template=REFERENCE)
        shapes |= decision.pop("$defs", {})
        shapes[decision["title"]] = decision
        rule["properties"][name] = {"$ref": REFERENCE.format(model=decision["title"])}
    rule["oneOf"] = [_alone(answer) for answer in ANSWERS]
    closed: Schema = _closed(whole)
    return closed


def _alone(answer: str) -> Schema:
    along = NEXT if answer in ("frame", "reflect") else ()
    others = [[other] for other in ANSWERS if other != answer and other not in along]
    several = map(list, combinations(along, 2))
    return {"required": [answer], "not": {"anyOf": [{"required": names} for names in (*others, *several)]}}


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    found = {key: _closed(inner) for key, inner in node.items() if key != "title" or not isinstance(inner, str)}
    return found | ({"additionalProperties": False} if "properties" in found else {})
