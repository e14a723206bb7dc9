"""Proof: what shows that a done-item is met, and what takes that back.

A framing fixes the kind of evidence for each item. A claim names an item, evidence of that kind from this run, and a
quote found in the whole of it (`Seen`). Without kinds, any step that ended ok and any artifact shows an item.
"""

import re
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from agent_service.core.events import Seen
from agent_service.core.phases import Met, Proof, Reflection
from agent_service.core.state import DoneItem, RunState, StepRecord
from agent_service.sentences import Text, say
from schemas.values import dataclass, replace

PERSON = "person"
FOLDER = "artifacts/"
STEP = "step:"
LONGEST = 1000
"""Characters in which a claim names its evidence."""

_APART = re.compile(r" ?[,;&+] ?(?:and )?| and ")
_STEP = re.compile(
    r"(?:the )?(?:(?:results?|output) of )?(?:the )?steps?(?: (?:no\.?|number))?\s*[:#]?\s*#?([1-9]\d{0,5})",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"#?([1-9]\d{0,5})")
_PERSON = re.compile(
    r"(?:the |an? )?(?:(?:message|answer|word)s?[ _](?:from|of)[ _])?(?:the |an?[ _])?person(?:'s \w+)?", re.IGNORECASE
)
_ARTIFACT = re.compile(r"(?:the )?artifacts?:?\s+", re.IGNORECASE)
_REMARK = re.compile(r"\s*\([^()]*\)$")
_MARKS = "`'\"<>[]. "


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    items: tuple[DoneItem, ...]
    accepted: tuple[Met, ...]
    refusals: tuple[Text, ...]


def judged(state: RunState, reflection: Reflection, seen: Iterable[Seen]) -> Judged:
    """What the reflection takes back goes first: it may be proved anew. A failed claim counts only where its item is
    left without proof, because models repeat what was accepted.
    """
    if not reflection.met and not reflection.unmet:
        return Judged(items=state.done_items, accepted=(), refusals=())
    looked_up = {(look.evidence, look.quote): look for look in seen}
    items = {item.id: item for item in state.done_items}
    named = (*(unmet.item for unmet in reflection.unmet), *(met.item for met in reflection.met))
    unknown = tuple(say("item_unknown", item=name) for name in dict.fromkeys(named) if name not in items)
    for unmet in (unmet for unmet in reflection.unmet if unmet.item in items):
        items[unmet.item] = without_tick(items[unmet.item])
    accepted, refused = [], list[tuple[str, Text]]()
    for claim in (met for met in reflection.met if met.item in items):
        item = items[claim.item]
        flaws = {place: _flaw(state, item, place, claim, looked_up) for place in places_of(state, item, claim)}
        shown = tuple(place for place, flaw in flaws.items() if not flaw)
        if shown:
            items[item.id] = _ticked(item, shown, claim.quote)
            accepted.append(replace(claim, evidence=", ".join(shown)))
        else:
            refused.append((item.id, next(iter(flaws.values()))))
    refusals = tuple(why for name, why in refused if items[name].proof is None or not items[name].done)
    return Judged(items=tuple(items.values()), accepted=tuple(accepted), refusals=(*unknown, *refusals))


def to_look_up(state: RunState, claim: Met) -> tuple[str, ...]:
    item = next((item for item in state.done_items if item.id == claim.item), None)
    if item is None or item.proof is None or not _says_something(claim.quote):
        return ()
    return tuple(place for place in places_of(state, item, claim) if not _unfit(state, item, place, claim))


def places_of(state: RunState, item: DoneItem, claim: Met) -> tuple[str, ...]:
    return (claim.evidence,) if item.proof is None else places_in(claim.evidence, state.artifacts)


def places_in(evidence: str, artifacts: Iterable[str]) -> tuple[str, ...]:
    known, places = frozenset(artifacts), list[str]()
    for part in _APART.split(" ".join(evidence[:LONGEST].split())):
        bare = _REMARK.sub("", part.strip(_MARKS)).strip(_MARKS)
        number = _STEP.fullmatch(bare) or (_NUMBER.fullmatch(bare) if places and places[-1].startswith(STEP) else None)
        places.append(f"{STEP}{number[1]}" if number else _named(bare, known))
    return tuple(dict.fromkeys(places))


def without_tick(item: DoneItem) -> DoneItem:
    return replace(item, evidence=(), quotes=())


def _says_something(text: str) -> bool:
    return any(map(str.isalnum, text))


def _named(bare: str, artifacts: frozenset[str]) -> str:
    if _PERSON.fullmatch(bare):
        return PERSON
    name = _ARTIFACT.sub("", bare, count=1).strip(_MARKS) if _ARTIFACT.match(bare) else bare
    return next((path for path in (name, f"{FOLDER}{name}") if path in artifacts), bare)


def _flaw(state: RunState, item: DoneItem, place: str, claim: Met, looked_up: Mapping[tuple[str, str], Seen]) -> Text:
    unfit = _unfit(state, item, place, claim)
    if unfit or item.proof is None:
        return unfit
    if not _says_something(claim.quote):
        if item.proof.kind == "step" and _brought_nothing(state, place):
            return ""
        return say("quote_needed", item=item.id, place=place)
    look = looked_up.get((place, claim.quote))
    if look and look.found:
        return ""
    where = "quote_not_in_artifact" if not place.startswith(STEP) else "quote_not_in_result"
    name = "quote_not_in_write" if where == "quote_not_in_result" and sent_with(state, place) else where
    return say(name, item=item.id, place=place, why=look.why if look else "")


def sent_with(state: RunState, place: str) -> dict[str, JsonValue] | None:
    step = _step_at(state, place)
    return step.sent if step else None


def _unfit(state: RunState, item: DoneItem, place: str, claim: Met) -> Text:
    step = _step_at(state, place)
    known = (step and step.status == "ok") or place in state.artifacts
    if item.proof and place == PERSON:
        known = bool(state.messages)
    if not known:
        failed = step.step if step else 0
        return say("evidence_missing", evidence=claim.evidence, item=item.id, failed=failed)
    if item.proof is None or _fits(item.proof, place, step):
        return ""
    tool = step.tool if step else ""
    return say("evidence_unfit", item=item.id, proof=shown_by(item.proof), place=place, tool=tool)


def shown_by(proof: Proof) -> Text:
    return say(f"shown_by_{proof.kind}", tool=proof.tool)


def _step_at(state: RunState, place: str) -> StepRecord | None:
    return next((record for record in state.completed if place == f"{STEP}{record.step}"), None)


def _brought_nothing(state: RunState, place: str) -> bool:
    step = _step_at(state, place)
    return step is not None and not _says_something(step.summary)


def _fits(proof: Proof, place: str, step: StepRecord | None) -> bool:
    of_its_tool = step is not None and proof.tool in ("", step.tool)
    match proof.kind:
        case "step":
            return of_its_tool
        case "artifact":
            return place.startswith(FOLDER)
        case "value":
            return of_its_tool or (not proof.tool and place.startswith(FOLDER))
        case "person":
            return place == PERSON


def _ticked(item: DoneItem, shown: tuple[str, ...], quote: str) -> DoneItem:
    if item.proof is None:
        return replace(item, evidence=tuple(dict.fromkeys((*item.evidence, *shown))))
    quotes = dict(zip(item.evidence, item.quotes, strict=True)) | dict.fromkeys(shown, quote)
    return replace(item, evidence=tuple(quotes), quotes=tuple(quotes.values()))
