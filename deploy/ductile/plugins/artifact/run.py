#!/usr/bin/env python3
"""Reads and searches an artifact (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer.

It opens no file: the gateway replaces the path by the content. Answers stay small: a long one would become an artifact,
and would have to be read in parts again.
"""

import json
import re
import sys
from dataclasses import dataclass
from typing import Any

from reading import Place, lines_of, part
from searching import any_of, count, search

MOST_LINES = DEFAULT_LINES = 1000
MOST_CONTEXT, DEFAULT_CONTEXT = 10, 2
LONGEST_PATTERN, MOST_PATTERNS, LONGEST_NAMED = 200, 8, 30


class Unusable(Exception):
    """Unusable arguments; the message says why, and what to give."""


@dataclass(frozen=True)
class Artifact:
    """A text artifact; messages name it by its `path`."""

    path: str
    lines: list[str]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request. Raises Unusable."""
    if request["command"] == "health":
        return {"status": "ok", "result": "artifact can be run"}
    payload = request.get("payload") or {}
    artifact = _artifact(payload.get("artifact"))
    perform = _search if request["command"] == "search" else _read
    found = perform(artifact, _start(payload, artifact), payload)
    if request.get("untrusted") or payload.get("agentic_untrusted"):  # whatever the run has kept may be strangers'
        found["output"]["untrusted"] = True
    return found


def _read(artifact: Artifact, start: Place, payload: dict[str, Any]) -> dict[str, Any]:
    most = _number(payload, "lines", DEFAULT_LINES, most=MOST_LINES)
    if not artifact.lines:
        return _response(f"{artifact.path} is empty: it has 0 lines", artifact, None, from_line=1, to_line=0)
    read = part(artifact.lines, start, most_lines=most)
    shown = f"lines {start.line} to {read.last_line}" if read.last_line > start.line else f"line {start.line}"
    beginning = f", from {_place_text(start)} on" if start.char > 1 else ""
    heading = f"{artifact.path}, {shown} of {len(artifact.lines)}{beginning}:"
    ending = "[this is the end of the artifact]" if read.next is None else _rest_of(artifact, read.next)
    text = f"{heading}\n{read.text}\n{ending}"
    return _response(text, artifact, read.next, from_line=start.line, to_line=read.last_line)


def _rest_of(artifact: Artifact, place: Place) -> str:
    if place.char == 1:
        left = _count(len(artifact.lines) - place.line + 1, "more line")
        return f"[cut: {left}; read on with {_as_arguments(place)}]"
    left = _count(len(artifact.lines[place.line - 1]) - place.char + 1, "more character")
    return f"[cut: {left} in line {place.line}; read on with {_as_arguments(place)}]"


def _search(artifact: Artifact, start: Place, payload: dict[str, Any]) -> dict[str, Any]:
    context = _number(payload, "context_lines", DEFAULT_CONTEXT, least=0, most=MOST_CONTEXT)
    patterns = _patterns(payload)
    wanted = any_of(patterns)
    matches, found = count(artifact.lines, wanted), search(artifact.lines, wanted, start, context=context)
    heading = f"{_count(matches, 'match', 'matches')} in {artifact.path}, {_count(len(artifact.lines), 'line')}"
    each = f" ({_counts(artifact, patterns)})" if len(patterns) > 1 else ""
    since = f"; from {_place_text(start)} on" if start != Place() else ""
    if found.text:
        ending = f"\n[cut: there are more matches; search on with {_as_arguments(found.next)}]" if found.next else ""
        text = f"{heading}{each}{since}:\n{found.text}{ending}"
    else:
        text = f"{heading}{each}{since}{': none' if matches else ''}"
    return _response(text, artifact, found.next, matches=matches)


def _counts(artifact: Artifact, patterns: list[str]) -> str:
    """Counts each pattern: the spelling of one without matches may be wrong."""
    counted = ((pattern, count(artifact.lines, any_of([pattern]))) for pattern in patterns)
    return ", ".join(
        f"“{pattern[:LONGEST_NAMED]}{'…' * (len(pattern) > LONGEST_NAMED)}”: {n}" for pattern, n in counted
    )


def _response(text: str, artifact: Artifact, place: Place | None, **facts: int) -> dict[str, Any]:
    output: dict[str, Any] = {"artifact": artifact.path, "total_lines": len(artifact.lines)} | facts
    output["more"] = place is not None
    if place:
        output["next"] = {"from_line": place.line} | ({"from_char": place.char} if place.char > 1 else {})
    return {"status": "ok", "result": text, "output": output}


def _count(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def _place_text(place: Place) -> str:
    return f"character {place.char} of line {place.line}" if place.char > 1 else f"line {place.line}"


def _as_arguments(place: Place) -> str:
    return f"from_line {place.line}" + (f" and from_char {place.char}" if place.char > 1 else "")


def _artifact(given: object) -> Artifact:
    if not isinstance(given, dict):
        raise Unusable("artifact must be the path of an artifact of this run, such as artifacts/fetch-01.html")
    path = given.get("path")
    if not isinstance(path, str) or not re.fullmatch(r"artifacts/[A-Za-z0-9._-]{1,100}", path):
        path = "the artifact"
    if not isinstance(given.get("text"), str):
        raise Unusable(f"{path} is not text: only texts can be read and searched")
    # What no event can carry, the gateway would replace, at another length.
    text = given["text"].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return Artifact(path, lines_of(text))


def _start(payload: dict[str, Any], artifact: Artifact) -> Place:
    last = max(1, len(artifact.lines))
    line = _number(payload, "from_line", 1, most=last, why=f", the last line of {artifact.path}")
    length = max(1, len(artifact.lines[line - 1])) if artifact.lines else 1
    char = _number(payload, "from_char", 1, most=length, why=f", the last character of line {line}")
    return Place(line, char)


def _patterns(payload: dict[str, Any]) -> list[str]:
    """Returns the texts of `pattern` and `patterns`, each once."""
    several = payload.get("patterns", [])
    if not isinstance(several, list) or len(several) > MOST_PATTERNS:
        raise Unusable(f"patterns must be a list of at most {MOST_PATTERNS} texts")
    one = [payload["pattern"]] if "pattern" in payload else []
    given = list(dict.fromkeys(_pattern(pattern) for pattern in (*one, *several)))
    if not given:
        raise Unusable("pattern is missing: give the text to find, or several in patterns")
    return given


def _pattern(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise Unusable("pattern must be the text to find")
    if len(given) > LONGEST_PATTERN or "\n" in given or "\r" in given:
        raise Unusable(f"pattern must be at most {LONGEST_PATTERN} characters of one line: give a piece of the text")
    return given


def _number(payload: dict[str, Any], name: str, default: int, *, least: int = 1, most: int, why: str = "") -> int:
    given = payload.get(name, default)
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise Unusable(f"{name} must be a whole number from {least} to {most}{why}")
    return given


def main() -> None:
    try:
        response = answer(json.load(sys.stdin.buffer))
    except Unusable as error:
        response = {"status": "error", "error": str(error), "retry": False, "error_class": "invalid_arguments"}
    sys.stdout.buffer.write(json.dumps(response, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
