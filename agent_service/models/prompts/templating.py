"""Prompt templates. Values are inserted without evaluation, and cannot contain tags."""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import Any

import jinja2

from agent_service.core import notes as core
from agent_service.core.notes import MAX_ARGUMENTS, MAX_THOUGHT, shorten_reflection
from agent_service.core.phases import Reflection
from agent_service.core.state import ChecklistItem, Excerpt, RunState, StepRecord
from schemas.clipping import clipped, with_cut_marker

FOLDER = "templates"
WORDED_IN_CODE = ("templating.py", "notes.py", "budget.py")
MAX_REFLECTION = 6000
_LESS_THAN = "<\ufe64\uff1c"
"""`<`, and the compatibility forms that Unicode folds to it."""

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


SHOWN_OF_ARGUMENTS = 600
"""Characters of a write's arguments that a verifier sees."""


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
    folder, digest = resources.files(__package__), hashlib.sha256()
    code = {name: (folder / name).read_text(encoding="utf-8") for name in WORDED_IN_CODE}
    for name, text in sorted((_texts() | code).items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


@cache
def _texts() -> dict[str, str]:
    folder = resources.files(__package__) / FOLDER
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".md")}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(_texts()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 # the text is for a model: `harmless` takes the tags out of what others wrote
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        harmless,
        clipped,
        shown_for,
        line,
        bounded,
        arguments,
        thought,
        shorten_reflection,
    )
    environment.filters.update({one.__name__: one for one in filters}, canonical=canonical)
    environment.globals.update({name: value for name, value in vars(core).items() if name.isupper()})
    return environment
