"""The files of a run's folder by name, as texts."""

from collections.abc import Iterator, Sequence

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.history.artifacts import named_artifacts
from agent_service.history.asked import asked
from agent_service.history.history import History
from agent_service.history.plain import instant
from agent_service.history.waiting_for import waiting_for
from agent_service.history.words import speaker
from agent_service.run.asks import human_task, remedy
from agent_service.run.changes import as_decided
from agent_service.run.journal import Entry, Record
from agent_service.views.pages.decisions import decisions_page
from agent_service.views.pages.markdown import bullets, code, fenced, inline, sentence
from agent_service.views.pages.standing import context_page, memory_page, plan_page, skills_page
from agent_service.views.pages.trace import trace


def pages(run: RunState, records: Sequence[Record]) -> dict[str, str]:
    """By file name. `records`: the whole journal of `run`."""
    history = History()
    ended = tuple(history.ends(records))
    head = tuple(_opening(run, history))
    return {
        "context.md": context_page(run, history),
        "memory.md": memory_page(run, history, head, named_artifacts(records)),
        "skills.md": skills_page(run, history),
        "plan.md": plan_page(run, history, head),
        "decisions.md": decisions_page(run, history, head),
        "trace.jsonl": trace(history, ended),
    }


def pages_of(entries: Sequence[Entry]) -> dict[str, str]:
    """The pages with the run as the rules tell it. Raises ValueError for a journal that is empty or cannot be told."""
    return pages(as_decided(entries), [entry.record() for entry in entries])


def _opening(run: RunState, history: History) -> Iterator[str]:
    """The head of a page: the run's outcome, or what it waits for and what a person does now."""
    yield _standing(run)
    if history.models:
        yield f"Thought by {' and '.join(inline(speaker(model)) for model in history.models)}."
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
