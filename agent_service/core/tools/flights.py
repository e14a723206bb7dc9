"""Requests in flight, in whichever state of the run, or pause, holds them."""

from agent_service.core.attempts import Flight, Gathering, Pending
from agent_service.core.facts import AnswerStatus, AttemptAnswered
from agent_service.core.state import RunState, replace
from agent_service.core.waiting import Acting, Waiting, acting_of, answered, then
from schemas.events import ToolError


def flights(waiting: Waiting) -> tuple[Flight, ...]:
    return acting_of(waiting).flights


def gatherings(waiting: Waiting) -> tuple[Gathering, ...]:
    return acting_of(waiting).gatherings


def gathering_of(waiting: Waiting, step: int) -> Gathering | None:
    for gathering in acting_of(waiting).gatherings:
        if gathering.step == step:
            return gathering
    return None


def flight_of(waiting: Waiting, step: int, task: str = "", asked_in: int = 0) -> Flight | None:
    name = (step, task, asked_in)
    for flight in acting_of(waiting).flights:
        if flight.pending.name == name:
            return flight
    return None


def with_flight(waiting: Waiting, flight: Flight) -> Waiting:
    name, now = flight.pending.name, acting_of(waiting)
    others = tuple(flight if other.pending.name == name else other for other in now.flights)
    return then(waiting, Acting(flights=others, gatherings=now.gatherings))


def without_flight(waiting: Waiting, pending: Pending) -> tuple[Flight, ...]:
    return tuple(flight for flight in flights(waiting) if flight.pending.name != pending.name)


def landed(waiting: Waiting, step: int) -> Waiting:
    now = acting_of(waiting)
    left = tuple([flight for flight in now.flights if flight.pending.step != step])
    gathered = tuple([gathering for gathering in now.gatherings if gathering.step != step])
    return then(waiting, Acting(flights=left, gatherings=gathered)) if left or gathered else answered(waiting)


def gathers(state: RunState, gathering: Gathering, under_way_now: tuple[Flight, ...]) -> RunState:
    others = (other for other in gatherings(state.waiting) if other.step != gathering.step)
    every = tuple(sorted((*others, gathering), key=lambda one: one.step))
    return replace(state, waiting=then(state.waiting, Acting(flights=under_way_now, gatherings=every)))


def answer(pending: Pending, status: AnswerStatus, error: ToolError | None = None) -> AttemptAnswered:
    return AttemptAnswered(
        step=pending.step,
        task=pending.task,
        round=pending.round,
        attempt=pending.attempt,
        tool=pending.action.tool,
        status=status,
        error=error,
    )
