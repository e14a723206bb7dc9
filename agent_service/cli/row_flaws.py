"""Flaws in the row of a run and in what is beside it, by its journal and by itself."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from agent_service.journal import Entry, Run, rehearse
from agent_service.store.rows import Loaded
from agent_service.telling.folder.verify import Flaw
from groundwork.sqlite.file import microseconds

ROW = "row"
DEPTH = 3
"""Of a state, its brief, and the limits in that, the parts are named."""


def flaws_of_row(loaded: Loaded, run: Run, goal: str, entries: Sequence[Entry]) -> list[Flaw]:
    """Where the state is not what its journal gives, and the columns not what the state says."""
    wrong = (*_of_columns(loaded, run, goal), *_of_fold(run, entries))
    return [Flaw(kind="changed", place=ROW, text=text) for text in wrong]


def flaws_of_version(run: Run, entries: Sequence[Entry]) -> list[Flaw]:
    """An agent at work writes both at once; they are read one after the other."""
    if len(entries) <= run.state.version:
        return []
    text = f"it is as of entry {run.state.version}, and its journal has {len(entries)}"
    return [Flaw(kind="behind", place=ROW, text=text)]


def _of_columns(loaded: Loaded, run: Run, goal: str) -> Iterator[str]:
    row, state = loaded, run.state
    due_at = microseconds(state.due_at) if state.due_at else None
    said = {
        "run_id": (row.run_id, state.run_id),
        "version": (row.seq, state.version),
        "status": (row.status, state.status.value),
        "due_at": (row.due_at, due_at),
        "summary": (row.summary, state.summary),
        "goal": (goal, state.brief.goal),
    }
    for name, (found, wanted) in said.items():
        if found != wanted:
            yield f"its {name} is {_short(found)}, and its state says {_short(wanted)}"


def _of_fold(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    try:
        *_, (_, transition) = rehearse(entries)
    except (ValueError, AssertionError, TypeError):  # of a journal that cannot be followed its own flaw is told
        return
    for name, given, found in _differing(transition.state, run.state):
        yield f"{name} is {_short(found)}, and its journal gives {_short(given)}"


def _differing(given: Any, found: Any, name: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any, Any]]:
    if given == found:
        return
    if not (depth and is_dataclass(given) and type(given) is type(found)):
        yield name, given, found
        return
    for field in fields(given):
        place = f"{name}.{field.name}" if name else field.name
        yield from _differing(getattr(given, field.name), getattr(found, field.name), place, depth - 1)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
