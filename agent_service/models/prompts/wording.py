"""Words of a prompt: templates, and notes as blocks, byte-identical in every prompt for the provider's cache. Pure.

Values are inserted without evaluation. Texts of tools, models and people stand between tags that they cannot close.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jinja2
from pydantic import JsonValue

from agent_service.core import notes as core
from agent_service.core.notes import MAX_ARGUMENTS, MAX_RESULT, MAX_THOUGHT, shorten_reflection
from agent_service.core.phases import Reflection
from agent_service.core.state import (
    ChecklistItem,
    Excerpt,
    MemoryNote,
    MessageNote,
    Note,
    RulingNote,
    RunState,
    StepNote,
    StepRecord,
)
from groundwork.service.invisible import visible
from schemas import catalog
from schemas.bounded import clipped, with_cut_marker
from schemas.events import ARTIFACT_PATH

FOLDER = Path(__file__).parent
WORDED_IN_CODE = ("wording.py", "prompt.py")
MAX_REFLECTION = 6000
SHOWN_OF_ARGUMENTS = 600
"""Characters of a write's arguments that a verifier sees."""
LEAST_ECHO = 16
"""Shorter arguments that a result repeats are shown."""
_LESS_THAN = "<\ufe64\uff1c"
"""`<`, and the compatibility forms that Unicode folds to it."""
_OF_THE_CALL = frozenset({"job_id", "content_type"})
_OF_A_CHILD = frozenset({"usage", "deadline_at"})
_TEMPLATES: dict[type[Note], str] = {MessageNote: "message", RulingNote: "ruling", MemoryNote: "memory"}

canonical = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode
"""Deterministic JSON of a value."""


def harmless(text: str) -> str:
    """Hides every sign that could begin a tag: a model reads tags more leniently than any pattern."""
    for sign in _LESS_THAN:
        text = text.replace(sign, "&lt;")
    return text


def line(text: str, length: int = MAX_THOUGHT) -> str:
    """For texts that notes have shortened: only a text full of signs is longer."""
    return clipped(harmless(text), length + 1)


def bounded(text: str, length: int, missing: int, rest: str = "") -> str:
    """`missing`: characters that the note has cut."""
    safe = harmless(text)
    if len(safe) <= length and not missing:
        return safe
    return with_cut_marker(safe[:length], len(safe) + missing, rest)


def arguments(kept: Excerpt) -> str:
    return bounded(canonical(kept.value), MAX_ARGUMENTS, kept.missing)


def thought(reflection: Reflection, told_as: str) -> str:
    """`reflection`: shortened, as notes keep it."""
    return clipped(harmless(rendered("reflection", said=reflection, told_as=told_as)), MAX_REFLECTION)


def shown_for(item: ChecklistItem, run: RunState) -> Iterator[tuple[str, str]]:
    """Evidence of an item, each with its call and quote."""
    calls = {f"step:{record.step}": f" ({record.tool} {record.command}{_sent(record)})" for record in run.completed}
    for evidence, quote in zip_longest(item.evidence, item.quotes[: len(item.evidence)], fillvalue=""):
        yield f"{evidence}{calls.get(evidence, '')}", quote


def _sent(record: StepRecord) -> str:
    return f" with {clipped(canonical(record.sent), SHOWN_OF_ARGUMENTS)}" if record.sent else ""


def rendered(name: str, **values: Any) -> str:
    """Raises jinja2.UndefinedError for a missing value."""
    return _environment().get_template(f"{name}.md").render(**values).strip()


@cache
def version() -> str:
    """Hash over all wording."""
    files = sorted((*FOLDER.glob("templates/*.md"), *(FOLDER / name for name in WORDED_IN_CODE)))
    texts = (f"{file.name}\0{file.read_text(encoding='utf-8')}\0" for file in files)
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        auto_reload=False,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 # the text is for a model: `harmless` takes the tags out of what others wrote
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (harmless, clipped, shown_for, line, bounded, arguments, thought, shorten_reflection)
    environment.filters.update({one.__name__: one for one in filters}, canonical=canonical)
    environment.globals.update({name: value for name, value in vars(core).items() if name.isupper()})
    return environment


# Notes


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
    new = {name: value for name, value in fields.items() if name not in known and not _is_echo(name, value, note)}
    nested = {name: _news(value, note) if isinstance(value, dict) else value for name, value in new.items()}
    return {name: value for name, value in nested.items() if value != {} or new[name] == {}}


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
