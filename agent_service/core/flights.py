"""Attempts that are under way, one or several side by side, whichever state of the run holds them.

A run waits for one attempt (`ForTool`, `ToolRetry`) or for several reads (`ForReads`), and a pause may hold either.
What becomes of an attempt is the same in all of them.
"""

from datetime import datetime

from agent_service.core.waiting import Flight, ForReads, ForTool, Pending, ToolRetry, Waiting, answered, then, under_way


def flights(waiting: Waiting) -> tuple[Flight, ...]:
    """All that is under way, in the order of the steps."""
    match under_way(waiting):
        case ForTool(pending=pending):
            return (Flight(pending=pending),)
        case ToolRetry(pending=pending, retry_at=at):
            return (Flight(pending=pending, retry_at=at),)
        case ForReads(flights=several):
            return several
    return ()


def flight_of(waiting: Waiting, step: int) -> Flight | None:
    """What is under way of `step`."""
    return next((flight for flight in flights(waiting) if flight.pending.step == step), None)


def due_first(waiting: Waiting) -> Flight:
    """Of what is under way, that whose instant comes first: to be sent, or to be given up."""
    return min(flights(waiting), key=_due_at)


def departing(pendings: tuple[Pending, ...]) -> ForTool | ForReads:
    """What a run waits for once these first attempts are sent."""
    if len(pendings) == 1:
        return ForTool(pending=pendings[0])
    return ForReads(flights=tuple(Flight(pending=pending) for pending in pendings))


def with_flight(waiting: Waiting, flight: Flight) -> Waiting:
    """`flight` takes the place of what was under way of its step."""
    match under_way(waiting), flight.retry_at:
        case ForReads(flights=several), _:
            step = flight.pending.step
            return then(waiting, ForReads(flights=tuple(flight if f.pending.step == step else f for f in several)))
        case _, None:
            return then(waiting, ForTool(pending=flight.pending))
        case _, retry_at:
            return then(waiting, ToolRetry(pending=flight.pending, retry_at=retry_at))


def landed(waiting: Waiting, step: int) -> Waiting:
    """What is waited for once `step` is finished: the others, if there are any."""
    others = tuple(flight for flight in flights(waiting) if flight.pending.step != step)
    return then(waiting, ForReads(flights=others)) if others else answered(waiting)


def _due_at(flight: Flight) -> datetime:
    return flight.retry_at or flight.pending.deadline_at
