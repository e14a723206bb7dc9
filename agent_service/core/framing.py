"""Framing: the goal as an objective with done-items, the proof that each item needs, and the checks of both.

The first framing's constraints stay. In a tainted run a person approves a reframe that names a new destination or
writing tool; a verifier looks at any other. The verifier sees only the goal, the items and their proofs. It can refuse
`done` once, and every new framing. If it cannot answer, `done` stands by its proofs; a new framing is not taken up.

A framing fixes the kind of evidence for each item. A claim names an item, evidence of that kind from this run, and a
quote found in its full text (`QuoteCheck`). Without kinds, any successful step and any artifact shows an item.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import zip_longest

from agent_service.core import asking, notes
from agent_service.core.egress import leaf_texts, new_destinations, trusted_texts
from agent_service.core.events import ModelReplied, QuoteCheck
from agent_service.core.limits import reached_before_a_call
from agent_service.core.phases import Framing, ItemClaim, Next, Phase, Proof, Reflection, Unusable, Verification
from agent_service.core.planning import ask_approval, refusal_flaws, take_along
from agent_service.core.state import ChecklistItem, RunState, StepRecord
from agent_service.core.waiting import OpenCall
from agent_service.sentences import Text, say
from schemas.values import replace


def framing_flaws(state: RunState, framing: Framing) -> list[Text]:
    brief, unknown, vague = state.brief, dict[str, Text](), list[Text]()
    for number, proof in enumerate(_proofs(framing), start=1):
        if proof.tool and not brief.skill(proof.tool):
            offered = ", ".join([skill.name for skill in brief.skills]) or "none"
            unknown[proof.tool] = say("proof_tool_unknown", tool=proof.tool[:64], offered=offered)
        if proof.kind == "value" and not proof.tool and len(brief.skills) > 1:
            vague.append(say("proof_without_tool", number=number))
    refused = refusal_flaws(state, _with_first_constraints(state, framing))
    return [*framing.flaws(), *unknown.values(), *vague, *refused]


def adopt(state: RunState, framing: Framing, plan: Next | Unusable | None) -> RunState:
    framed = replace(
        state,
        framing=framing,
        original=state.original or state.framing,
        first_choice=None,
        done_items=_items(state, framing),
        summary=say("framed", goal=framing.goal_statement),
    )
    phase = asking.next_phase(framed)
    return take_along(framed, plan) if plan and phase is Phase.PLAN else asking.ask(framed, phase)


def _items(state: RunState, framing: Framing) -> tuple[ChecklistItem, ...]:
    texts, proofs = framing.definition_of_done, _proofs(framing)
    first = 1 + max([int(item.id[1:]) for item in state.done_items], default=0) if proofs else 1
    both = enumerate(zip_longest(texts, proofs), start=first)
    return tuple([ChecklistItem(id=f"d{n}", text=text, proof=proof) for n, (text, proof) in both])


def _proofs(framing: Framing) -> list[Proof]:
    """Proofs by tool name alone, and without a tool where the kind has none."""
    both = [(one, one.tool.partition(".")[0] if one.kind in ("step", "value") else "") for one in framing.proofs]
    return [one if one.tool == tool else replace(one, tool=tool) for one, tool in both]


# Verification


def is_affordable(state: RunState) -> bool:
    return state.brief.verify and reached_before_a_call(state) is None


def take_verification(state: RunState, _: OpenCall, __: ModelReplied, found: Verification) -> RunState:
    framing, settled = state.proposed, replace(state, claim=None, proposed=None)
    if state.claim:
        return _of_done(settled, state.claim, found)
    if framing and found.holds:  # the decision in hand is the verifier's, not the plan that came along earlier
        adopted = adopt(replace(settled, happened=()), framing, state.first_choice)
        return replace(adopted, happened=(*settled.happened, *adopted.happened))
    refused = (say("framing_refused", why=found.reason), say("framing_stands"))
    why = refused if framing else (say("said_newer"),)
    return asking.ask(replace(settled, summary=why[0]), Phase.REFLECT, feedback=why)


def _of_done(state: RunState, claim: Reflection, found: Verification) -> RunState:
    if found.holds:
        return asking.complete(state, claim)
    items = tuple(unticked(item) if item.id in found.doubted else item for item in state.done_items)
    summary = say("done_refused", why=found.reason)
    doubted = replace(state, done_items=items, unverified=state.unverified + 1, summary=summary)
    still_open = (say("item_reopened", item=item.id, text=item.text) for item in items if not item.done)
    feedback = (say("done_rejected", why=found.reason), *still_open)
    return asking.ask(doubted, Phase.REFLECT, feedback=feedback)


def take_framing(state: RunState, open_call: OpenCall, reply: ModelReplied, framing: Framing) -> RunState:
    plan = reply.plan
    if flaws := tuple(framing_flaws(state, framing)):
        return asking.ask_again(state, open_call, flaws)
    if state.framing is None:
        return adopt(state, framing, plan)
    within, held = _with_first_constraints(state, framing), None if isinstance(plan, Unusable) else plan
    if why := _approval_reason(state, within):
        return ask_approval(replace(state, first_choice=held), within, why)
    if is_affordable(state):
        return asking.ask(replace(state, first_choice=held, proposed=within), Phase.VERIFY)
    return adopt(state, within, plan)


def _approval_reason(state: RunState, framing: Framing) -> Text:
    """The reason in a tainted run: the framing names a new destination, or a new tool with external writes."""
    if not state.tainted_by:
        return ""
    before = leaf_texts(asdict(state.framing)) if state.framing else ()
    known, texts = (*trusted_texts(state), *before), tuple(leaf_texts(asdict(framing)))
    commands = (f"{skill.name}.{command.name}" for skill in state.brief.skills for command in skill.commands)
    new: list[Text] = [*new_destinations(texts, (*known, *commands))]
    for skill in state.brief.skills:
        reaches_out = any(command.tier == "write" and command.effect != "local" for command in skill.commands)
        if reaches_out and _names(texts, skill.name) and not _names(known, skill.name):
            new.append(say("the_tool", tool=skill.name))
    names = ", ".join(map(str, new))
    return say("framing_beyond", names=names, tainted_by=state.tainted_by) if new else ""


def _with_first_constraints(state: RunState, framing: Framing) -> Framing:
    first = state.original or state.framing
    if first is None:
        return framing
    return replace(framing, constraints=tuple(dict.fromkeys((*first.constraints, *framing.constraints))))


def _names(texts: Iterable[str], tool: str) -> bool:
    return bool(re.search(rf"(?<![\w-]){re.escape(tool)}(?![\w-])", "\n".join(texts), re.IGNORECASE))


# Proof

PERSON, FOLDER, STEP = "person", "artifacts/", "step:"
LONGEST = 1000
"""Characters of a claim's evidence that are read."""

_PUNCTUATION = "`'\"<>[]().,; "


def judge_claims(
    state: RunState, reflection: Reflection, seen: Iterable[QuoteCheck]
) -> tuple[tuple[ChecklistItem, ...], tuple[ItemClaim, ...], tuple[Text, ...]]:
    """Returns the items, the accepted claims, and the refusals of others.

    Retractions come first, so that their items can be proved again. A failed claim is refused only if its item is left
    without proof, because models repeat accepted claims.
    """
    if not reflection.met and not reflection.unmet:
        return state.done_items, (), ()
    looked_up = {(look.evidence, look.quote): look for look in seen}
    items = {item.id: item for item in state.done_items}
    named = dict.fromkeys([*[unmet.item for unmet in reflection.unmet], *[met.item for met in reflection.met]])
    unknown = [say("item_unknown", item=name) for name in named if name not in items]
    items |= {one.item: unticked(items[one.item]) for one in reflection.unmet if one.item in items}
    accepted, refused = list[ItemClaim](), list[tuple[str, Text]]()
    for claim in [met for met in reflection.met if met.item in items]:
        item = items[claim.item]
        flaws = {place: _flaw(state, item, place, claim, looked_up) for place in evidence_places(state, item, claim)}
        shown = tuple([place for place, flaw in flaws.items() if not flaw])
        if shown:
            items[item.id] = _ticked(item, shown, claim.quote)
            accepted.append(replace(claim, evidence=", ".join(shown)))
        else:
            refused.append((item.id, next(iter(flaws.values()))))
    refusals = [why for name, why in refused if items[name].proof is None or not items[name].done]
    return tuple(items.values()), tuple(accepted), (*unknown, *refusals)


def places_to_check(state: RunState, claim: ItemClaim) -> tuple[str, ...]:
    item = next((item for item in state.done_items if item.id == claim.item), None)
    if item is None or item.proof is None or not _has_words(claim.quote):
        return ()
    return tuple([place for place in evidence_places(state, item, claim) if not _misfit(state, item, place, claim)])


def evidence_places(state: RunState, item: ChecklistItem, claim: ItemClaim) -> tuple[str, ...]:
    return (claim.evidence,) if item.proof is None else parse_places(claim.evidence, state.artifacts)


def parse_places(evidence: str, artifacts: Iterable[str]) -> tuple[str, ...]:
    """The places that evidence names, also in natural words; else the evidence itself."""
    words = evidence[:LONGEST].split()
    bare = {word.strip(_PUNCTUATION) for word in words}
    files = [path for path in artifacts if path in bare or path.removeprefix(FOLDER) in bare]
    text = " ".join([word for word in words if "/" not in word and FOLDER + word.strip(_PUNCTUATION) not in files])
    steps = [f"{STEP}{number}" for number in notes.steps_in(text)]
    people = [PERSON] if PERSON in text.casefold() else []
    return tuple(dict.fromkeys((*files, *steps, *people))) or (" ".join(words).strip(_PUNCTUATION),)


def unticked(item: ChecklistItem) -> ChecklistItem:
    return replace(item, evidence=(), quotes=())


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _flaw(
    state: RunState, item: ChecklistItem, place: str, claim: ItemClaim, looked_up: Mapping[tuple[str, str], QuoteCheck]
) -> Text:
    misfit = _misfit(state, item, place, claim)
    if misfit or item.proof is None:
        return misfit
    if not _has_words(claim.quote):
        step = step_at(state, place)
        brought_nothing = item.proof.kind == "step" and step is not None and not _has_words(step.summary)
        return "" if brought_nothing else say("quote_needed", item=item.id, place=place)
    look = looked_up.get((place, claim.quote))
    if look and look.found:
        return ""
    return say("quote_missing", item=item.id, place=place, why=look.why if look else "")


def _misfit(state: RunState, item: ChecklistItem, place: str, claim: ItemClaim) -> Text:
    step = step_at(state, place)
    known = (step and step.status == "ok") or place in state.artifacts
    if item.proof and place == PERSON:
        known = bool(state.messages)
    if not known:
        failed = step.step if step else 0
        return say("evidence_missing", evidence=claim.evidence, item=item.id, failed=failed)
    if item.proof is None or _fits(item.proof, place, step):
        return ""
    tool = step.tool if step else ""
    return say("evidence_unfit", item=item.id, proof=proof_text(item.proof), place=place, tool=tool)


def proof_text(proof: Proof) -> Text:
    return say(f"shown_by_{proof.kind}", tool=proof.tool)


def step_at(state: RunState, place: str) -> StepRecord | None:
    return next((record for record in state.completed if place == f"{STEP}{record.step}"), None)


def _fits(proof: Proof, place: str, step: StepRecord | None) -> bool:
    of_its_tool, is_artifact = step is not None and proof.tool in ("", step.tool), place.startswith(FOLDER)
    fits = {"step": of_its_tool, "artifact": is_artifact, "person": place == PERSON}
    return fits.get(proof.kind, of_its_tool or (is_artifact and not proof.tool))


def _ticked(item: ChecklistItem, shown: tuple[str, ...], quote: str) -> ChecklistItem:
    if item.proof is None:
        return replace(item, evidence=tuple(dict.fromkeys((*item.evidence, *shown))))
    quotes = dict(zip(item.evidence, item.quotes, strict=True)) | dict.fromkeys(shown, quote)
    return replace(item, evidence=tuple(quotes), quotes=tuple(quotes.values()))
