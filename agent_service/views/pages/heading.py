"""The head of a page: the run's outcome, or what it waits for and what a person does now."""

from collections.abc import Iterator, Sequence

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.history.asked import asked
from agent_service.history.history import History
from agent_service.history.plain import instant
from agent_service.history.waiting_for import waiting_for
from agent_service.history.words import speaker
from agent_service.run.asks import human_task, remedy
from agent_service.run.journal import Record
from agent_service.views.pages.markdown import bullets, code, fenced, inline, sentence
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run as it stands, its whole journal, and the history that is folded from it."""

    run: RunState
    records: Sequence[Record]
    history: History


def opening(recorded: RecordedRun) -> Iterator[str]:
    run = recorded.run
    yield _standing(run)
    if recorded.history.models:
        yield f"Thought by {' and '.join(inline(speaker(model)) for model in recorded.history.models)}."
    if run.outcome:
        yield f"**Outcome:** {inline(str(run.outcome))}"
    if asks := human_task(run):
        rows = asked(asks.model_dump(mode="json"))
        yield bullets(f"**{name}:** {inline(text)}" if name else inline(text) for name, text in rows)
    if now := remedy(run):
        yield f"*What to do now:* {inline(now.text)}:"
        yield fenced(now.command)


def _standing(run: RunState) -> str:
    if run.status is Status.QUEUED:
        return "**Queued**: accepted, not started."
    if run.final and run.ended_at:
        ended = f"**Ended: {run.status}** at {instant(run.ended_at)}"
        why = "" if run.status is Status.DONE else f" ({code(run.ending_class)}): {inline(str(run.reason))}"
        return sentence(ended + why)
    waits = waiting_for(run)
    how = "Paused" if run.status is Status.PAUSED else "Running"
    word = f" ({code(run.ending_class)})" if run.ending_class else ""
    return f"**{how}**{word}, waiting for {sentence(inline(waits.text) if waits else 'nothing')}"
