"""The head of a page: the run's outcome, or what it waits for and what a person does now."""

from collections.abc import Iterator

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.history.plain import instant
from agent_service.history.waiting_for import waiting_for
from agent_service.history.words import request_of
from agent_service.run.petition import petition
from agent_service.run.remedies import remedy
from agent_service.views.pages.markdown import bullets, code, fenced, inline, json_block, sentence
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
    waits = waiting_for(run)
    how = "Paused" if run.status is Status.PAUSED else "Running"
    word = f" ({code(run.ending_class)})" if run.ending_class else ""
    return f"**{how}**{word}, waiting for {sentence(inline(waits.text) if waits else 'nothing')}"
