"""Markdown whose structure no text of others can forge: what is put into a page is escaped unless it is `Marked`."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from agent_service.core.phases import Met, Proof, Unmet
from agent_service.core.proof import shown_by
from agent_service.history.plain import clipped, instant, one_line
from agent_service.history.words import said
from groundwork.service.invisible import visible

MAX_LINE = 2_000
MAX_BLOCK = 8_000
WITHIN = "\x1e"
"""Ends a line of a block until the page is whole: no text has it, because it is invisible."""

_ACTIVE = re.compile(r"[\\`*\[\]<]|~~|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#A-Za-z])")
_ACTIVE_AT_START = re.compile(r"^(?:[-+=#>~|]|(\d{1,9})(?=[.)]))")
_BACKTICKS = re.compile(r"`+")
_BETWEEN_BLOCKS = re.compile(r"\n{3,}")


class Marked(str):
    """Markdown of our own."""

    __slots__ = ()


def inline(text: object, limit: int = MAX_LINE) -> Marked:
    escaped = _ACTIVE.sub(r"\\\g<0>", one_line(str(text), limit))
    return Marked(_ACTIVE_AT_START.sub(lambda m: f"{m[0]}\\" if m[1] else f"\\{m[0]}", escaped) or "(empty)")


def sentence(text: object) -> Marked:
    marked = inline(text)
    return marked if marked.endswith((".", "!", "?", "…")) else Marked(f"{marked}.")


def code(text: str, limit: int = 200) -> Marked:
    line = one_line(text, limit)
    if not line:
        return Marked("(empty)")
    ticks = "`" * (_longest_run(line) + 1)
    pad = " " if len(ticks) > 1 else ""
    return Marked(f"{ticks}{pad}{line}{pad}{ticks}")


def fenced(text: str, language: str = "text", *, limit: int = MAX_BLOCK) -> Marked:
    shown = clipped(visible(text), limit).strip("\n")
    fence = "`" * max(3, _longest_run(shown) + 1)
    return Marked(f"{fence}{language}\n{shown}\n{fence}".replace("\n", WITHIN))


def json_block(value: Mapping[str, JsonValue], *, limit: int = MAX_BLOCK) -> Marked:
    return fenced(json.dumps(value, indent=2, ensure_ascii=False), "json", limit=limit)


_OURS: dict[type[Any], Callable[[Any], str]] = {
    datetime: instant,
    bool: lambda value: "yes" if value else "no",
    float: "{:g}".format,
    int: str,
}
_TOLD: dict[type[Any], Callable[[Any], object]] = {Proof: shown_by, Met: said, Unmet: said}


def worded(value: Any) -> Marked:
    """A value of a run as a page shows it."""
    if isinstance(value, Marked):
        return value
    ours, told = _OURS.get(type(value)), _TOLD.get(type(value))
    return Marked(ours(value)) if ours else inline(told(value) if told else value)


def joined(page: str) -> str:
    """The page with one empty line between two blocks."""
    return _BETWEEN_BLOCKS.sub("\n\n", page).strip("\n").replace(WITHIN, "\n") + "\n"


def _longest_run(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)
