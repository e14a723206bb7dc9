"""Waiting for an instant that the model chose: neither a step nor a model call, and durable as every timer is."""

from datetime import datetime, timedelta

from agent_service.core.events import TimerFired
from agent_service.core.facts import Slept
from agent_service.core.model.asking import ask, phase_of_next
from agent_service.core.phases import Wait
from agent_service.core.state import RunState, replace, with_facts
from agent_service.core.waiting import Deciding, Sleeping

LEAST_S = 1.0
MOST_IN_A_ROW = 10
"""Waits without a step between them: each is a model call, and nothing is looked at."""
LONGEST_S = 30 * 86400.0


def flaws_of(state: RunState, wait: Wait, at: datetime) -> tuple[str, ...]:
    if flaws := flaws_of_instant(wait, at):
        return flaws
    deadline = state.brief.limits.deadline_at
    if _until(wait, at) >= deadline:
        return (f"the wait does not end before the deadline of the run, {deadline:%Y-%m-%dT%H:%M:%SZ}",)
    often = f"you have waited {state.waits} times since the newest step: look at something, ask, or escalate"
    return (often,) if state.waits >= MOST_IN_A_ROW else ()


def flaws_of_instant(wait: Wait, at: datetime) -> tuple[str, ...]:
    if (wait.until is None) == (wait.seconds is None):
        return ("wait needs one of seconds and until",)
    if wait.seconds is not None and not LEAST_S <= wait.seconds <= LONGEST_S:
        return (f"wait.seconds is {wait.seconds}: it must be at least {LEAST_S:g} and at most {LONGEST_S:.0f}",)
    if wait.until is not None and wait.until.tzinfo is None:
        return ("wait.until needs its time zone, such as Z for UTC",)
    if wait.until is not None and wait.until <= at:
        return (f"wait.until has passed: it is {at:%Y-%m-%dT%H:%M:%SZ}",)
    return ()


def _until(wait: Wait, at: datetime) -> datetime:
    return wait.until or at + timedelta(seconds=wait.seconds or 0.0)


def wait_for(state: RunState, wait: Wait, *, at: datetime) -> RunState:
    waiting = Sleeping(until=_until(wait, at), since=at, why=wait.why)
    summary = f"waits until {waiting.until:%Y-%m-%dT%H:%M:%SZ}: {wait.why}"
    resting = replace(
        state, waiting=waiting, waited_at_step=state.step, waits=state.waits + 1, summary=summary, updated_at=at
    )
    return with_facts(resting, Slept(until=waiting.until, why=wait.why))


def over(state: RunState, *, at: datetime) -> RunState:
    waited = state.waiting
    told = f"you have waited since {waited.since:%H:%M} UTC: {waited.why}" if isinstance(waited, Sleeping) else ""
    going_on = replace(state, waiting=Deciding())
    return ask(going_on, phase_of_next(state, at), at=at, feedback=(told,) if told else ())


def on_time(state: RunState, event: TimerFired) -> RunState:
    return over(state, at=event.at)
