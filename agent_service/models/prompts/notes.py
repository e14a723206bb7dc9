"""A run's notes as blocks of a prompt, the same bytes in every prompt, for the provider's cache. Pure.

Texts of tools, models and people stand between tags that they cannot close.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache

from pydantic import JsonValue

from agent_service.core.noted import Kept, MemoryNote, MessageNote, Note, RulingNote, StepNote
from agent_service.core.notes import MAX_ARGUMENTS, MAX_FACT, MAX_MESSAGE, MAX_REMEMBERED, MAX_RESULT, MAX_THOUGHT
from agent_service.core.phases import Reflection
from groundwork.service.invisible import visible
from schemas import catalog
from schemas.clipping import clipped, marked
from schemas.events import ARTIFACT_PATH

MAX_REFLECTION, LEAST_ECHO = 6000, 16
"""Characters of a reflection, and of an argument that a result need not repeat."""
_OF_THE_CALL = frozenset({"job_id", "content_type"})
_OF_A_CHILD = frozenset({"usage", "deadline_at"})
_LESS_THAN = "<\ufe64\uff1c"
"""`<`, and what Unicode's compatibility forms fold to it."""

canonical = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode
"""A value as JSON, the same for the same value."""


def harmless(text: str) -> str:
    """Hides every sign that could begin a tag: a model reads tags more kindly than any pattern of ours."""
    for sign in _LESS_THAN:
        text = text.replace(sign, "&lt;")
    return text


def told(notes: Iterable[Note]) -> tuple[str, ...]:
    """One block for each note. Steps stand in their order, whichever ended first."""
    listed = tuple(notes)
    steps = iter(sorted((note for note in listed if isinstance(note, StepNote)), key=lambda note: note.step))
    return tuple(block(next(steps) if isinstance(note, StepNote) else note) for note in listed)


class _Same:
    """A note by its identity: its fields cannot be hashed, and it never changes."""

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
    return visible(_worded(same.note))


def _worded(note: Note) -> str:
    match note:
        case StepNote():
            return "\n".join(_step(note))
        case MessageNote():
            return "\n".join(_message(note))
        case RulingNote():
            return "\n".join(("<ruling>", *_ruling(note), "</ruling>"))
        case MemoryNote():
            return "\n".join(("<memory_of_older_steps>", *_memory(note), "</memory_of_older_steps>"))


def is_heeded(note: Note) -> bool:
    return isinstance(note, RulingNote) or (isinstance(note, MessageNote) and not note.untrusted)


def thought(reflection: Reflection, told_as: str = "Reflection") -> str:
    """`reflection`: in short, as notes keep it."""
    met = ", ".join(f"{met.item} ({met.evidence})" for met in reflection.met)
    unmet = ", ".join(f"{unmet.item} ({unmet.reason})" for unmet in reflection.unmet)
    facts = "".join(f"\n- {fact}" for fact in reflection.facts)
    lines = (
        f"{told_as}: {reflection.summary}",
        f"Accepted as met: {met}" if met else "",
        f"No longer met: {unmet}" if unmet else "",
        f"Facts learned:{facts}" if facts else "",
    )
    return clipped(harmless("\n".join(filter(None, lines))), MAX_REFLECTION)


def _step(note: StepNote) -> Iterator[str]:
    yield f'<step number="{note.step}" tool="{note.tool}" command="{note.command}" status="{note.status}">'
    if note.reflection:
        yield thought(note.reflection, f"Reflection after step {note.step - 1}")
    if note.rationale:
        yield f"Why: {_line(note.rationale)}"
    if note.expected:
        yield f"Expected: {_line(note.expected)}"
    yield f"Arguments: {_object(note.arguments)}"
    yield "<untrusted_result>"
    if note.asked:
        asked = "; ".join(f"{one.task}: {one.what} ({one.status})" for one in note.asked)
        yield f"Asked for first: {_line(asked)}"
    yield from (_result(note), "</untrusted_result>", "</step>")


def _message(note: MessageNote) -> Iterator[str]:
    if note.answers:
        yield from ("<asked_of_a_person>", _line(note.answers), "</asked_of_a_person>")
    tag = "untrusted_result" if note.untrusted else "message_from_a_person"
    yield from (f"<{tag}>", _bounded(note.said, MAX_MESSAGE, note.missing), f"</{tag}>")


def _ruling(note: RulingNote) -> Iterator[str]:
    if note.arguments is None:
        yield f"{note.verdict}: the framing: {_line(note.framing, MAX_ARGUMENTS)}"
    elif note.verdict == "approved" and not note.task:
        yield f"approved as it was planned: {note.call}"
    else:
        yield f"{note.verdict}: {note.call} {_object(note.arguments)}"
    if note.reason:
        yield _line(note.reason, MAX_MESSAGE)


def _memory(note: MemoryNote) -> Iterator[str]:
    yield from (f"- {_line(fact, MAX_FACT)}" for fact in note.facts)
    if not note.facts:
        yield "- nothing worth keeping"
    if note.older:
        yield "<untrusted_result>"
        for old in note.older:
            yield f"- step {old.step}, {old.tool} {old.command}, {old.status}: {_line(old.summary, MAX_REMEMBERED)}"
        yield "</untrusted_result>"


def _line(text: str, length: int = MAX_THOUGHT) -> str:
    """What is noted in short already: only a text full of signs is longer."""
    return clipped(harmless(text), length + 1)


def _object(kept: Kept) -> str:
    return _bounded(canonical(kept.value), MAX_ARGUMENTS, kept.missing)


def _bounded(text: str, length: int, missing: int, rest: str = "") -> str:
    """`missing`: characters that the note does not have."""
    safe = harmless(text)
    if len(safe) <= length and not missing:
        return safe
    return marked(safe[:length], len(safe) + missing, rest)


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
    return _bounded("\n".join(filter(None, parts)) or "(nothing)", MAX_RESULT, note.output.missing, rest)


def _news(fields: dict[str, JsonValue], note: StepNote) -> dict[str, JsonValue]:
    """The fields that tell something: not of the call, no echo of the arguments, and not said by the summary."""
    known = _OF_THE_CALL | (_OF_A_CHILD if note.tool == catalog.NAME else frozenset())
    told = {name: value for name, value in fields.items() if name not in known and not _is_echo(name, value, note)}
    nested = {name: _news(value, note) if isinstance(value, dict) else value for name, value in told.items()}
    return {name: value for name, value in nested.items() if value != {} or told[name] == {}}


def _is_echo(name: str, value: JsonValue, note: StepNote) -> bool:
    """Short values stay: that they are what was asked for may be the news."""
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
