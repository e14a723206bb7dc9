"""Markdown whose structure no text of others can forge."""

import json
import re
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from agent_service.history.plain import clipped, one_line
from groundwork.service.invisible import visible

MAX_LINE = 2_000
MAX_BLOCK = 8_000

_ACTIVE = re.compile(r"[\\`*\[\]<]|~~|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#A-Za-z])")
_ACTIVE_AT_START = re.compile(r"^(?:[-+=#>~|]|(\d{1,9})(?=[.)]))")
_BACKTICKS = re.compile(r"`+")


def inline(text: str, limit: int = MAX_LINE) -> str:
    escaped = _ACTIVE.sub(r"\\\g<0>", one_line(text, limit))
    return _ACTIVE_AT_START.sub(lambda m: f"{m[0]}\\" if m[1] else f"\\{m[0]}", escaped) or "(empty)"


def code(text: str, limit: int = 200) -> str:
    line = one_line(text, limit)
    if not line:
        return "(empty)"
    ticks = "`" * (_longest_run(line) + 1)
    pad = " " if len(ticks) > 1 else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fenced(text: str, language: str = "text", *, limit: int = MAX_BLOCK) -> str:
    shown = clipped(visible(text), limit).strip("\n")
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def json_block(value: Mapping[str, JsonValue], *, limit: int = MAX_BLOCK) -> str:
    return fenced(json.dumps(value, indent=2, ensure_ascii=False), "json", limit=limit)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def numbered(texts: Iterable[str]) -> str:
    return "\n".join(f"{number}. {inline(text)}" for number, text in enumerate(texts, start=1))


def sentence(markdown: str) -> str:
    return markdown if markdown.endswith((".", "!", "?", "…")) else f"{markdown}."


def tick(done: bool, line: str) -> str:
    return f"- [{'x' if done else ' '}] {line}"


def section(heading: str, *blocks: str, level: int = 2) -> str:
    return "\n\n".join((f"{'#' * level} {heading}", *filter(None, blocks)))


def page(title: str, *blocks: str) -> str:
    return "\n\n".join((f"# {title}", *filter(None, blocks))) + "\n"


def _longest_run(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)
