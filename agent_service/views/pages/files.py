"""The files of a run's folder by name, as texts."""

from collections.abc import Sequence

from agent_service.core.state import RunState
from agent_service.history.artifacts import FILES
from agent_service.history.history import History
from agent_service.run.changes import as_decided
from agent_service.run.journal import Entry, Record
from agent_service.views.pages.decisions import decisions_page
from agent_service.views.pages.heading import RecordedRun
from agent_service.views.pages.standing import context_page, memory_page, plan_page, skills_page
from agent_service.views.pages.trace import trace


def pages(run: RunState, records: Sequence[Record]) -> dict[str, str]:
    """By file name. `records`: the whole journal of `run`."""
    history = History()
    ended = tuple(history.ends(records))
    recorded = RecordedRun(run=run, records=records, history=history)
    written = (context_page, memory_page, skills_page, plan_page, decisions_page)
    return dict(zip(FILES, (*(page(recorded) for page in written), trace(history, ended)), strict=True))


def pages_of(entries: Sequence[Entry]) -> dict[str, str]:
    """The pages with the run as the rules tell it. Raises ValueError for a journal that is empty or cannot be told."""
    return pages(as_decided(entries), [entry.record() for entry in entries])
