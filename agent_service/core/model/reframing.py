"""Reframe: another objective for the person's goal.

The first framing's constraints stay. In a tainted run a person approves a framing that names a new addressee or
writing tool; a verifier looks at any other.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime

from agent_service.core.model import verifying
from agent_service.core.model.framing import adopt
from agent_service.core.people import addressees
from agent_service.core.people.approving import ask_approval, hash_of, refusals_of
from agent_service.core.phases import Framing, Next, Unusable
from agent_service.core.state import RunState, replace
from schemas.catalog import ToolOffer


def take_framing(state: RunState, framing: Framing, plan: Next | Unusable | None, *, at: datetime) -> RunState:
    if state.framing is None:
        return adopt(state, framing, plan, at=at)
    within, held = _within_the_first(state, framing), None if isinstance(plan, Unusable) else plan
    if why := why_needed(state, within):
        then = ask_approval(replace(state, first_choice=held), within, why, at=at)
    elif verifying.is_affordable(state, at):
        then = verifying.look_at_framing(replace(state, first_choice=held), within, at=at)
    else:
        return adopt(state, within, plan, at=at)
    return then


def flaws_of(state: RunState, framing: Framing) -> tuple[str, ...]:
    return refusals_of(state, hash_of(_within_the_first(state, framing)), "this framing") if state.rulings else ()


def why_needed(state: RunState, framing: Framing) -> str:
    if not state.strangers:
        return ""
    new = (*_new_addressees(state, framing), *_new_writes(state, framing))
    if not new:
        return ""
    since = f"{state.strangers} brought what strangers wrote"
    return f"the new framing names {', '.join(new)}, which nobody asked for, and {since}"


def _within_the_first(state: RunState, framing: Framing) -> Framing:
    first = state.original or state.framing
    kept = first.constraints if first else ()
    return replace(framing, constraints=tuple(dict.fromkeys((*kept, *framing.constraints))))


def _new_addressees(state: RunState, framing: Framing) -> tuple[str, ...]:
    commands = (f"{skill.name}.{command.name}" for skill in state.brief.skills for command in skill.commands)
    return addressees.added(_texts(framing), (*_named_before(state), *commands))


def _new_writes(state: RunState, framing: Framing) -> tuple[str, ...]:
    writes = (skill.name for skill in state.brief.skills if _reaches_out(skill))
    before, new = "\n".join(_named_before(state)), "\n".join(_texts(framing))
    return tuple(f"the tool {name}" for name in writes if _names(new, name) and not _names(before, name))


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
