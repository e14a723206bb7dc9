"""Verification: another look whether `done`, or a new framing, is what the goal asks for.

It sees the goal, the items and their proofs only. `done` can be refused once, a new framing each time. Where nobody
can look, `done` stands by its proofs; a new framing is not taken up.
"""

from datetime import datetime

from agent_service.core import endings
from agent_service.core.limits import reached_before_a_call
from agent_service.core.model.asking import ask
from agent_service.core.model.framing import adopt
from agent_service.core.phases import Framing, Phase, Reflection, Verification
from agent_service.core.proof import without_tick
from agent_service.core.state import RunState, replace


def is_affordable(state: RunState, at: datetime) -> bool:
    return state.brief.verify and reached_before_a_call(state, at) is None


def look_at_done(state: RunState, claim: Reflection, *, at: datetime) -> RunState:
    if state.unverified or not is_affordable(state, at):
        return endings.complete(state, claim.outcome or claim.summary, at)
    return ask(replace(state, claim=claim), Phase.VERIFY, at=at)


def look_at_framing(state: RunState, framing: Framing, *, at: datetime) -> RunState:
    return ask(replace(state, proposed=framing), Phase.VERIFY, at=at)


def take_verification(state: RunState, found: Verification, *, at: datetime) -> RunState:
    claim, framing = state.claim, state.proposed
    settled = replace(state, claim=None, proposed=None)
    if claim:
        return _of_done(settled, claim, found, at=at)
    if framing:
        return _of_framing(settled, framing, found, at=at)
    why = "a person said something newer than what was claimed"
    return ask(replace(settled, summary=why), Phase.REFLECT, at=at, feedback=(why,))


def _of_done(state: RunState, claim: Reflection, found: Verification, *, at: datetime) -> RunState:
    if found.holds:
        return endings.complete(state, claim.outcome or claim.summary, at)
    items = tuple(without_tick(item) if item.id in found.doubted else item for item in state.done_items)
    summary = f"done was refused: {found.reason}"
    doubted = replace(state, done_items=items, unverified=state.unverified + 1, summary=summary)
    still_open = (f"item {item.id} is open again: {item.text}" for item in items if not item.done)
    feedback = (f"`done` was rejected by the verifier: {found.reason}", *still_open)
    return ask(doubted, Phase.REFLECT, at=at, feedback=feedback)


def _of_framing(state: RunState, framing: Framing, found: Verification, *, at: datetime) -> RunState:
    if found.holds:
        return adopt(state, framing, state.first_choice, at=at)
    refused = f"the new framing was refused: {found.reason}"
    feedback = (refused, "what was framed before is in force: go on with it, frame what serves the goal, or escalate")
    return ask(replace(state, summary=refused), Phase.REFLECT, at=at, feedback=feedback)
