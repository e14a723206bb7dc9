"""Going on after a stop of everything: the stopped time counts against no deadline and no timeout."""

from dataclasses import replace as changed
from datetime import timedelta

from agent_service.core.events import StoodStill
from agent_service.core.limits import stood_still
from agent_service.core.state import RunState, replace
from agent_service.core.tools.attempts import Flight
from agent_service.core.waiting import Acting, Waiting


def on_stood_still(state: RunState, event: StoodStill) -> RunState | str:
    if state.stood_until and state.stood_until >= event.at:
        return "it has heard of that already"
    since = max(event.since, state.accepted_at)
    if event.at <= since:
        return "it was accepted afterwards"
    later = stood_still(state, since, event.at)
    summary = f"goes on: everything was stopped by {event.by}" + (f" ({event.reason})" if event.reason else "")
    waiting = _later(state.waiting, event.at - since)
    return replace(later, waiting=waiting, stood_until=event.at, summary=summary, updated_at=event.at)


def _later(waiting: Waiting, by: timedelta) -> Waiting:
    if not isinstance(waiting, Acting):
        return waiting
    flights = tuple(_flight(flight, by) for flight in waiting.flights)
    gatherings = tuple(changed(gathering, until=gathering.until + by) for gathering in waiting.gatherings)
    return Acting(flights=flights, gatherings=gatherings)


def _flight(flight: Flight, by: timedelta) -> Flight:
    return changed(flight, pending=changed(flight.pending, deadline_at=flight.pending.deadline_at + by))
