"""What a run owes the bus and the model where it stands, from its state alone and word for word as the first time."""

from agent_service.core import endings
from agent_service.core.brief import Limits
from agent_service.core.effects import AskModel, Publish, publish
from agent_service.core.people import petition
from agent_service.core.state import RunState
from agent_service.core.tools import acting
from agent_service.core.tools.flights import flights
from agent_service.core.waiting import Status
from schemas import events as wire
from schemas import keys, subjects

LONGEST_GOAL = 200
"""Characters of a goal in its announcement; the run has all of it."""


def announcement(state: RunState) -> Publish:
    """The `agentic.start` of a run from the wake API, without context and callback, which may be large or secret."""
    start = wire.AgenticStart(
        goal=_beginning(state.brief.goal),
        constraints=_constraints(state.brief.limits),
        run_id=state.run_id,
        wake_id=state.wake_id,
        parent_run_id=state.brief.parent.run_id if state.brief.parent else None,
        depth=state.brief.depth,
    )
    return publish(subjects.START, start, keys.start(state.wake_id))


def _beginning(goal: str) -> str:
    return goal if len(goal) <= LONGEST_GOAL else f"{goal.strip()[: LONGEST_GOAL - 1]}…"


def outstanding(state: RunState) -> tuple[Publish, ...]:
    said = []
    if state.status is Status.QUEUED and state.brief.announced:
        said.append(announcement(state))
    if state.stop:
        said.append(endings.ending(state))
    said += petition.said(state)
    said += (acting.request(state, flight.pending) for flight in flights(state.waiting) if flight.retry_at is None)
    return tuple(said)


def asked(state: RunState) -> AskModel | None:
    calling = state.calling
    return AskModel(call=calling.call, phase=calling.phase) if calling else None


def _constraints(granted: Limits) -> wire.Constraints:
    return wire.Constraints(
        max_steps=granted.max_steps or None,  # a child may be left with nothing, which is no constraint to ask for
        max_reframes=granted.max_reframes,
        max_tokens=granted.max_tokens or None,
        max_cost_usd=granted.max_cost_usd or None,
        deadline_at=granted.deadline_at,
    )
