"""Requests in flight, one or several side by side, in whichever state of the run, or pause, holds them."""

from datetime import datetime

from agent_service.core.state import RunState, replace
from agent_service.core.tools.attempts import Flight, Gathering, Pending
from agent_service.core.waiting import (
    ForEvidence,
    ForReads,
    ForTool,
    ToolRetry,
    Waiting,
    answered,
    then,
    under_way,
)


def flights(waiting: Waiting) -> tuple[Flight, ...]:
    match under_way(waiting):
        case ForTool(pending=pending):
            return (Flight(pending=pending),)
        case ToolRetry(pending=pending, retry_at=at):
            return (Flight(pending=pending, retry_at=at),)
        case ForReads(flights=several) | ForEvidence(flights=several):
            return several
    return ()


def gatherings(waiting: Waiting) -> tuple[Gathering, ...]:
    match under_way(waiting):
        case ForEvidence(gatherings=several):
            return several
    return ()


def gathering_of(waiting: Waiting, step: int) -> Gathering | None:
    return next((gathering for gathering in gatherings(waiting) if gathering.step == step), None)


def flight_of(waiting: Waiting, step: int, task: str = "", asked_in: int = 0) -> Flight | None:
    name = (step, task, asked_in)
    return next((flight for flight in flights(waiting) if flight.pending.name == name), None)


def due_first(waiting: Waiting) -> Flight | Gathering:
    held = under_way(waiting)
    every: list[Flight | Gathering] = [*held.ticking] if isinstance(held, ForEvidence) else []
    return min((*every, *flights(waiting)), key=_due_at)


def departing(pendings: tuple[Pending, ...]) -> ForTool | ForReads:
    if len(pendings) == 1:
        return ForTool(pending=pendings[0])
    return ForReads(flights=tuple(Flight(pending=pending) for pending in pendings))


def with_flight(waiting: Waiting, flight: Flight) -> Waiting:
    name = flight.pending.name
    match under_way(waiting), flight.retry_at:
        case (ForReads(flights=several) | ForEvidence(flights=several)) as held, _:
            others = tuple(flight if other.pending.name == name else other for other in several)
            return then(waiting, replace(held, flights=others))
        case _, None:
            return then(waiting, ForTool(pending=flight.pending))
        case _, retry_at:
            return then(waiting, ToolRetry(pending=flight.pending, retry_at=retry_at))


def without_flight(waiting: Waiting, pending: Pending) -> tuple[Flight, ...]:
    return tuple(flight for flight in flights(waiting) if flight.pending.name != pending.name)


def landed(waiting: Waiting, step: int) -> Waiting:
    left = tuple(flight for flight in flights(waiting) if flight.pending.step != step)
    gathered = tuple(gathering for gathering in gatherings(waiting) if gathering.step != step)
    if gathered:
        return then(waiting, ForEvidence(flights=left, gatherings=gathered))
    return then(waiting, ForReads(flights=left)) if left else answered(waiting)


def gathers(state: RunState, gathering: Gathering, under_way_now: tuple[Flight, ...]) -> RunState:
    others = (other for other in gatherings(state.waiting) if other.step != gathering.step)
    every = tuple(sorted((*others, gathering), key=lambda one: one.step))
    return replace(state, waiting=then(state.waiting, ForEvidence(flights=under_way_now, gatherings=every)))


def _due_at(one: Flight | Gathering) -> datetime:
    return one.until if isinstance(one, Gathering) else one.retry_at or one.pending.deadline_at
