"""Frame and reframe: the goal as an objective, its done-items, and the proof that each needs.

The first framing's constraints stay. In a tainted run a person approves a reframe that names a new addressee or
writing tool; a verifier looks at any other. The verifier sees the goal, the items and their proofs only. `done` can be
refused once, a new framing each time. Where the verifier cannot look, `done` stands by its proofs; a new framing is not
taken up.
"""

import json
import re
from collections.abc import Iterator

from agent_service.core import egress, endings
from agent_service.core.approving import ask_approval, hash_of, refusals_of
from agent_service.core.asking import ask, phase_of_next
from agent_service.core.brief import Brief
from agent_service.core.limits import reached_before_a_call
from agent_service.core.phases import Framing, Next, Phase, Proof, Reflection, Unusable, Verification
from agent_service.core.planning import take_next
from agent_service.core.proof import without_tick
from agent_service.core.state import DoneItem, RunState
from agent_service.sentences import Text, say
from schemas.catalog import ToolOffer
from schemas.values import replace


def flaws_of_framing(brief: Brief, framing: Framing) -> tuple[Text, ...]:
    offered = ", ".join(skill.name for skill in brief.skills) or "none"
    unknown = dict.fromkeys(
        proof.tool for proof in _proofs(brief, framing) if proof.tool and not brief.skill(proof.tool)
    )
    missing = (say("proof_tool_unknown", tool=tool[:64], offered=offered) for tool in unknown)
    return (*framing.flaws(), *missing, *_without_a_tool(brief, framing))


def _without_a_tool(brief: Brief, framing: Framing) -> Iterator[Text]:
    if len(brief.skills) < 2:
        return
    for n, proof in enumerate(framing.proofs, start=1):
        if proof.kind == "value" and not proof.tool:
            yield say("proof_without_tool", number=n)


def adopt(state: RunState, framing: Framing, plan: Next | Unusable | None) -> RunState:
    framed = _framed(state, framing)
    phase = phase_of_next(framed)
    go_on = plan is not None and phase is Phase.PLAN
    return take_next(framed, plan, ()) if plan and go_on else ask(framed, phase)


def _framed(state: RunState, framing: Framing) -> RunState:
    return replace(
        state,
        framing=framing,
        original=state.original or state.framing,
        first_choice=None,
        done_items=_items(state, framing),
        summary=say("framed", goal=framing.goal_statement),
    )


def _items(state: RunState, framing: Framing) -> tuple[DoneItem, ...]:
    texts, proofs = framing.definition_of_done, _proofs(state.brief, framing)
    if not proofs:
        return tuple(DoneItem(id=f"d{n}", text=text) for n, text in enumerate(texts, start=1))
    first = 1 + max((int(item.id[1:]) for item in state.done_items), default=0)
    items = enumerate(zip(texts, proofs, strict=True), start=first)
    return tuple(DoneItem(id=f"d{n}", text=text, proof=proof) for n, (text, proof) in items)


def _proofs(brief: Brief, framing: Framing) -> tuple[Proof, ...]:
    return tuple(replace(proof, tool=_tool(brief, proof)) for proof in framing.proofs)


def _tool(brief: Brief, proof: Proof) -> str:
    if proof.kind in ("artifact", "person"):
        return ""
    return proof.tool if brief.skill(proof.tool) else proof.tool.partition(".")[0]


def is_affordable(state: RunState) -> bool:
    return state.brief.verify and reached_before_a_call(state) is None


def look_at_done(state: RunState, claim: Reflection) -> RunState:
    if state.unverified or not is_affordable(state):
        return endings.complete(state, claim.outcome or claim.summary)
    return ask(replace(state, claim=claim), Phase.VERIFY)


def look_at_framing(state: RunState, framing: Framing) -> RunState:
    return ask(replace(state, proposed=framing), Phase.VERIFY)


def take_verification(state: RunState, found: Verification) -> RunState:
    claim, framing = state.claim, state.proposed
    settled = replace(state, claim=None, proposed=None)
    if claim:
        return _of_done(settled, claim, found)
    if framing:
        return _of_framing(settled, framing, found)
    why = say("claim_outrun")
    return ask(replace(settled, summary=why), Phase.REFLECT, feedback=(why,))


def _of_done(state: RunState, claim: Reflection, found: Verification) -> RunState:
    if found.holds:
        return endings.complete(state, claim.outcome or claim.summary)
    items = tuple(without_tick(item) if item.id in found.doubted else item for item in state.done_items)
    summary = say("done_doubted", why=found.reason)
    doubted = replace(state, done_items=items, unverified=state.unverified + 1, summary=summary)
    still_open = (say("item_reopened", item=item.id, text=item.text) for item in items if not item.done)
    feedback = (say("done_rejected", why=found.reason), *still_open)
    return ask(doubted, Phase.REFLECT, feedback=feedback)


def _of_framing(state: RunState, framing: Framing, found: Verification) -> RunState:
    if found.holds:
        return adopt(state, framing, state.first_choice)
    refused = say("framing_refused", why=found.reason)
    feedback = (refused, say("framing_stands"))
    return ask(replace(state, summary=refused), Phase.REFLECT, feedback=feedback)


def take_framing(state: RunState, framing: Framing, plan: Next | Unusable | None) -> RunState:
    if state.framing is None:
        return adopt(state, framing, plan)
    within, held = _within_the_first(state, framing), None if isinstance(plan, Unusable) else plan
    if why := why_a_person_is_needed(state, within):
        then = ask_approval(replace(state, first_choice=held), within, why)
    elif is_affordable(state):
        then = look_at_framing(replace(state, first_choice=held), within)
    else:
        return adopt(state, within, plan)
    return then


def flaws_of_reframing(state: RunState, framing: Framing) -> tuple[Text, ...]:
    return refusals_of(state, hash_of(_within_the_first(state, framing)), say("this_framing")) if state.rulings else ()


def why_a_person_is_needed(state: RunState, framing: Framing) -> Text:
    if not state.tainted_by:
        return ""
    new = (*_new_addressees(state, framing), *_new_writes(state, framing))
    if not new:
        return ""
    return say("framing_beyond", names=", ".join(map(str, new)), tainted_by=state.tainted_by)


def _within_the_first(state: RunState, framing: Framing) -> Framing:
    first = state.original or state.framing
    kept = first.constraints if first else ()
    return replace(framing, constraints=tuple(dict.fromkeys((*kept, *framing.constraints))))


def _new_addressees(state: RunState, framing: Framing) -> tuple[str, ...]:
    commands = (f"{skill.name}.{command.name}" for skill in state.brief.skills for command in skill.commands)
    return egress.new_addressees(_texts(framing), (*_named_before(state), *commands))


def _new_writes(state: RunState, framing: Framing) -> tuple[Text, ...]:
    writes = (skill.name for skill in state.brief.skills if _reaches_out(skill))
    before, new = "\n".join(_named_before(state)), "\n".join(_texts(framing))
    return tuple(say("the_tool", tool=name) for name in writes if _names(new, name) and not _names(before, name))


def _reaches_out(skill: ToolOffer) -> bool:
    return any(command.tier == "write" and command.effect != "local" for command in skill.commands)


def _names(text: str, tool: str) -> bool:
    return bool(re.search(rf"(?<![\w-]){re.escape(tool)}(?![\w-])", text, re.IGNORECASE))


def _named_before(state: RunState) -> Iterator[str]:
    if not state.brief.untrusted:
        yield state.brief.goal
        yield json.dumps(state.brief.context, ensure_ascii=False)
    yield from state.messages
    if state.framing:
        yield from _texts(state.framing)


def _texts(framing: Framing) -> Iterator[str]:
    yield framing.goal_statement
    yield from framing.definition_of_done
    yield from framing.constraints
    yield from framing.assumptions
    yield framing.hypothesis or ""
    yield from (proof.tool for proof in framing.proofs)
