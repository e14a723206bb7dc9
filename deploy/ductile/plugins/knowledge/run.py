#!/usr/bin/env python3
"""Searches a folder of Markdown pages (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer.

It shows whole sections: those that do not fit are counted, not cut.
"""

import json
import os
import sqlite3
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pages import is_marked
from searching import Answer, Found, search

MOST_BYTES = 10_500
"""Limit of an answer's text: beyond 12 KiB it would become an artifact, and only its beginning would be shown."""
LIMITS = {"fast": 3, "thorough": 8}
MOST_SECTIONS, LONGEST_QUERY, LONGEST_NAMED = 20, 4_096, 80
WAIT_S, SPARE_S = 20.0, 2.0


class Unusable(Exception):
    """Ends the call with an error; its class implies the remedy."""

    def __init__(self, message: str, error_class: str = "invalid_arguments", *, retry: bool = False) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry = retry


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request. Raises Unusable."""
    config, payload = request.get("config") or {}, request.get("payload") or {}
    folder, cache = _folder(config.get("folder")), _cache(config.get("cache"))
    if request["command"] == "health":
        return {"status": "ok", "result": f"knowledge can be run, on the pages in {folder}"}
    query, profile = _query(payload.get("query")), _profile(payload.get("profile", "fast"))
    limit = _limit(payload.get("limit", LIMITS[profile]))
    wait_s = max(0.0, min(WAIT_S, _left_s(request.get("deadline_at")) - SPARE_S))
    try:
        found = search(folder, cache, query, thorough=profile == "thorough", limit=limit, wait_s=wait_s)
    except TimeoutError as error:
        raise Unusable(f"the pages could not be searched in time: {error}", "timeout", retry=True) from error
    except sqlite3.Error as error:
        raise Unusable(f"this Python's SQLite cannot index the pages: {error}", "configuration") from error
    return _response(query, profile, found, folder)


def _response(query: str, profile: str, found: Answer, folder: Path) -> dict[str, Any]:
    shown = _fitting(found.best)
    parts = [f"[{number}] {_title(one)}\n{one.section.text}" for number, one in enumerate(shown, 1)]
    named = query if len(query) <= LONGEST_NAMED else f"{query[:LONGEST_NAMED]}…"
    rest = found.in_all - len(shown)
    heading = (
        f"{len(shown)} of {found.in_all} sections that fit “{named}” ({profile})"
        if found.in_all
        else (f"No section of the pages fits “{named}” ({profile}): try other words for it")
    )
    ending = [f"[{rest} more: ask in narrower words]"] if rest else []
    untrusted = {one.page for one in shown if is_marked(folder, one.page)}
    listed = [
        {"page": one.page, "heading": one.section.heading[:LONGEST_NAMED]}
        | {"from_line": one.section.from_line, "to_line": one.section.to_line}
        | ({"untrusted": True} if one.page in untrusted else {})
        for one in shown
    ]
    output = {"query": query[:LONGEST_NAMED], "profile": profile, "found": found.in_all, "sections": listed}
    output |= {"untrusted": True} if untrusted else {}
    return {"status": "ok", "result": "\n\n".join([heading, *parts, *ending]), "output": output}


def _title(one: Found) -> str:
    section = one.section
    named = f": {section.heading}" if section.heading else ""
    return f"{one.page}, lines {section.from_line} to {section.to_line}{named}"


def _fitting(best: tuple[Found, ...]) -> list[Found]:
    shown, size = list[Found](), 0
    for one in best:
        size += len(f"{_title(one)}{one.section.text}".encode()) + 10
        if shown and size > MOST_BYTES:
            break
        shown.append(one)
    return shown


def _folder(given: object) -> Path:
    """Returns the folder with links resolved, so that each of its names leads to one index."""
    if not isinstance(given, str) or not given.strip():
        raise Unusable("no folder of pages is set: give the plugin's configuration a `folder`", "configuration")
    try:
        folder = Path(given).expanduser().resolve()
        os.scandir(folder).close()
    except (OSError, RuntimeError, ValueError) as error:  # also of an unknown home, a loop of links, or NUL
        why = f"the folder of pages cannot be read: {given!r}: {error}"
        raise Unusable(f"{why}; set `folder` in the plugin's configuration", "configuration") from error
    return folder


def _cache(given: object) -> Path | None:
    """Returns None if this user has no home, and no cache is configured."""
    with suppress(RuntimeError):
        return Path(given if isinstance(given, str) and given.strip() else "~/.cache/agentic-knowledge").expanduser()
    return None


def _query(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise Unusable("query is missing: say in words what is looked for")
    if len(given) > LONGEST_QUERY:
        raise Unusable(f"query must be at most {LONGEST_QUERY} characters: leave out what no page would say")
    return " ".join(given.encode("utf-8", "replace").decode().replace("\0", " ").split())


def _profile(given: object) -> str:
    if not isinstance(given, str) or given not in LIMITS:
        raise Unusable(f"profile must be one of {', '.join(LIMITS)}")
    return given


def _limit(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_SECTIONS:
        raise Unusable(f"limit must be a whole number from 1 to {MOST_SECTIONS}")
    return given


def _left_s(deadline: object) -> float:
    try:
        return (datetime.fromisoformat(str(deadline)) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return WAIT_S + SPARE_S


def main() -> None:
    try:
        response = answer(json.load(sys.stdin.buffer))
    except Unusable as error:
        error_fields = {"error": str(error), "retry": error.retry, "error_class": error.error_class}
        response = {"status": "error"} | error_fields
    sys.stdout.buffer.write(json.dumps(response, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
