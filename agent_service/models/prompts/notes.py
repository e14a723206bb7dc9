"""Notes of a run as prompt blocks, byte-identical in every prompt for the provider's cache. Pure.

Texts of tools, models and people stand between tags that they cannot close.
"""

from collections.abc import Iterable
from functools import lru_cache

from pydantic import JsonValue

from agent_service.core.notes import MAX_RESULT
from agent_service.core.state import MemoryNote, MessageNote, Note, RulingNote, StepNote
from agent_service.models.prompts.templating import bounded, canonical, rendered
from groundwork.service.invisible import visible
from schemas import catalog
from schemas.events import ARTIFACT_PATH

LEAST_ECHO = 16
"""Shorter arguments that a result repeats are shown."""
_OF_THE_CALL = frozenset({"job_id", "content_type"})
_OF_A_CHILD = frozenset({"usage", "deadline_at"})
_TEMPLATES: dict[type[Note], str] = {MessageNote: "message", RulingNote: "ruling", MemoryNote: "memory"}


def blocks(notes: Iterable[Note]) -> tuple[str, ...]:
    """One block per note. Steps are in their order, whichever ended first."""
    listed = tuple(notes)
    steps = iter(sorted((note for note in listed if isinstance(note, StepNote)), key=lambda note: note.step))
    return tuple(block(next(steps) if isinstance(note, StepNote) else note) for note in listed)


class _Same:
    """Key by identity: a note's fields are not hashable, and it never changes."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.note is self.note

    def __hash__(self) -> int:
        return id(self.note)


def block(note: Note) -> str:
    return _block(_Same(note))


@lru_cache(maxsize=1024)
def _block(same: _Same) -> str:
    note = same.note
    if not isinstance(note, StepNote):
        return visible(rendered(_TEMPLATES[type(note)], note=note))
    return visible(rendered("step", note=note, asked=note.asked, result=_result(note)))


def is_from_person(note: Note) -> bool:
    return isinstance(note, RulingNote) or (isinstance(note, MessageNote) and not note.untrusted)


def _result(note: StepNote) -> str:
    output = note.output.value
    path, excerpt, summary = (_text(output.get(name)) for name in ("artifact_path", "excerpt", "summary"))
    whole = path if ARTIFACT_PATH.fullmatch(path) else ""
    rest = f"; the whole is the artifact {whole}" if whole else "; ask the tool for less at a time"
    listed = _listed(output.get("artifacts"))
    apart = {
        *(name for name in ("summary", "excerpt") if isinstance(output.get(name), str)),
        *(("artifact_path",) if whole else ()),
        *(("artifacts",) if listed else ()),
    }
    fields = _news({name: value for name, value in output.items() if name not in apart}, note)
    artifacts = ", ".join(listed) or whole
    parts = (
        summary,
        canonical(fields) if fields else "",
        f"Artifacts: {artifacts}" if artifacts else "",
        f"Excerpt of {whole or 'the result'}:\n{excerpt}" if excerpt else "",
    )
    return bounded("\n".join(filter(None, parts)) or "(nothing)", MAX_RESULT, note.output.missing, rest)


def _news(fields: dict[str, JsonValue], note: StepNote) -> dict[str, JsonValue]:
    """Fields with news: not about the call, no echo of the arguments, and not in the summary."""
    known = _OF_THE_CALL | (_OF_A_CHILD if note.tool == catalog.NAME else frozenset())
    told = {name: value for name, value in fields.items() if name not in known and not _is_echo(name, value, note)}
    nested = {name: _news(value, note) if isinstance(value, dict) else value for name, value in told.items()}
    return {name: value for name, value in nested.items() if value != {} or told[name] == {}}


def _is_echo(name: str, value: JsonValue, note: StepNote) -> bool:
    """Short values stay: their match with the request may be the news."""
    match name, value:
        case "truncated", False:
            return True
        case "title", str():
            return value in _text(note.output.value.get("summary"))
        case _, str() if len(value) >= LEAST_ECHO:
            return value == note.arguments.value.get("url" if name == "final_url" else name)
    return False


def _listed(artifacts: JsonValue) -> list[str]:
    if not isinstance(artifacts, list):
        return []
    listed = [_sized(artifact) for artifact in artifacts if isinstance(artifact, dict)]
    return listed if all(listed) and len(listed) == len(artifacts) else []


def _sized(artifact: dict[str, JsonValue]) -> str:
    path, size = _text(artifact.get("path")), artifact.get("size")
    if not ARTIFACT_PATH.fullmatch(path):
        return ""
    return f"{path} ({size} bytes)" if isinstance(size, int) else path


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
