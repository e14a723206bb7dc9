"""The head of a page: the run's outcome, or what it waits for and what a person does now."""

from collections.abc import Iterator
from datetime import datetime

from agent_service.core.people.petition import petition
from agent_service.core.people.remedies import remedy
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Flight, Pending
from agent_service.core.tools.flights import flights
from agent_service.core.waiting import Approval, Question, Sleeping, Status, Thinking, under_way
from agent_service.telling.acts import executor_of
from agent_service.telling.pages.markdown import bullets, code, fenced, inline, json_block, sentence
from agent_service.telling.plain import instant
from agent_service.telling.sayings import call_of, request_of
from schemas.events import Waiting as Petition


def opening(run: RunState) -> Iterator[str]:
    yield standing(run)
    if run.outcome:
        yield f"**Outcome:** {inline(run.outcome)}"
    asked = petition(run)
    if asked:
        yield from _asked(asked)
    yield from what_to_do(run)


def what_to_do(run: RunState) -> Iterator[str]:
    now = remedy(run)
    if now:
        yield f"*What to do now:* {inline(now.text)}:"
        yield fenced(now.command)


def _asked(asked: Petition) -> Iterator[str]:
    if asked.question:
        yield f"**The question:** {inline(asked.question)}"
        yield bullets(map(inline, asked.choices))
        yield f"What was tried: {inline(asked.tried)}" if asked.tried else ""
        yield f"What an answer would change: {inline(asked.would_change)}" if asked.would_change else ""
        yield f"Why it is asked: {sentence(inline(asked.reason))}"
    if asked.tool:
        of = f", {request_of((asked.step, asked.task, asked.round or 0))}" if asked.step and asked.task else ""
        yield f"**The call:** {code(' '.join(filter(None, (asked.tool, asked.command))))}{of}, with these arguments:"
    if asked.arguments:
        yield json_block(asked.arguments)
    if asked.arguments_hash:
        yield f"Its hash: {code(asked.arguments_hash)}."
    if asked.expires_at:
        yield f"It waits until {instant(asked.expires_at)}."


def standing(run: RunState) -> str:
    if run.status is Status.QUEUED:
        return "**Queued**: accepted, not started."
    if run.final and run.ended_at:
        if run.status is Status.DONE:
            return f"**Ended: {run.status}** at {instant(run.ended_at)}."
        ended = f"**Ended: {run.status}** at {instant(run.ended_at)}"
        return f"{ended} ({code(run.ending_class)}): {sentence(inline(run.reason))}"
    match run.ask:
        case Approval(reason=reason):
            return f"**Paused**, waiting for a person's approval: {sentence(inline(reason))}"
        case Question():
            return "**Paused**, waiting for a person's answer."
    if run.status is Status.PAUSED:
        return f"**Paused** ({code(run.ending_class)}), waiting for a person: {sentence(inline(run.reason))}"
    return f"**Running**, waiting for {sentence(waited_for(run))}"


def waited_for(run: RunState) -> str:
    match under_way(run.waiting):
        case Thinking(asking=asking, retry_at=datetime() as at):
            return f"the time to ask the model again for {asking.phase}: {instant(at)}"
        case Thinking(asking=asking):
            return f"the model to {asking.phase} (call {asking.call})"
        case Sleeping(until=until, why=why):
            return f"the time until {instant(until)}: {inline(why)}"
    return ", and ".join(awaited(run, flight) for flight in flights(run.waiting)) or "nothing"


def awaited(run: RunState, flight: Flight) -> str:
    if flight.retry_at is None:
        return _result(run, flight.pending)
    return f"the time to send {_attempt(flight.pending)}: {instant(flight.retry_at)}"


def _attempt(pending: Pending) -> str:
    return f"{request_of(pending.name)}, {code(call_of(pending.action))}, attempt {pending.attempt}"


def _result(run: RunState, pending: Pending) -> str:
    executor = executor_of(run, pending)
    whom = f"{code(executor)}, route {code(pending.route)}" if executor else f"route {code(pending.route)}"
    asked, due = instant(pending.requested_at), instant(pending.deadline_at)
    return f"the result of {_attempt(pending)}, asked of {whom} at {asked}, due by {due}"
