#!/usr/bin/env python3
"""Writes a critique of a text (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer."""

import json
import sys
from dataclasses import asdict
from typing import Any

from critique import critique
from facts import measure, words_of
from points import count, plain
from reading import Reading, read
from tones import tone_named

NOT_TOLD = ("longest_sentence_text", "english")


class Unusable(Exception):
    """There is nothing to report on; the message says why."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request. Raises Unusable."""
    if request["command"] == "health":
        return {"status": "ok", "result": "text-report can be run"}
    payload = (request.get("event") or request).get("payload") or {}
    text, content_type, path = _artifact(payload.get("artifact"))
    reading = read(text, content_type)
    facts = measure(reading)
    if not facts.words:
        raise Unusable("the artifact holds no readable text: 0 words outside scripts, styles and navigation")
    title, tone = _title(payload.get("title"), reading, path), tone_named(str(payload.get("tone") or ""))
    report = critique(reading, facts, title=title, tone=tone)
    told = {name: value for name, value in asdict(facts).items() if name not in NOT_TOLD}
    size = len(words_of(report))
    return {
        "status": "ok",
        "result": f"Wrote critique.md: 2 paragraphs, {size} words, {tone.name} in tone, on “{title}” "
        f"({count(facts.words, 'word')}, {count(facts.sentences, 'sentence')})",
        "output": {"paragraphs": 2, "words": size, "tone": tone.name, "title": title, "facts": told},
        "artifacts": [{"name": "critique.md", "content_type": "text/markdown", "text": report}],
    }


def _artifact(given: object) -> tuple[str, str, str]:
    """Text, content type and path: of the artifact the gateway put in place of its path, or of plain text."""
    if isinstance(given, dict) and isinstance(given.get("text"), str):
        return given["text"], str(given.get("content_type") or ""), str(given.get("path") or "")
    if isinstance(given, dict):
        raise Unusable("the artifact is not text: only pages and texts can be reported on")
    if isinstance(given, str) and given.strip():
        return given, "", ""
    raise Unusable("artifact is missing: name the artifact to read")


def _title(wished: object, reading: Reading, path: str) -> str:
    headings = [text for _, text in reading.headings[:1]]
    for title in (wished, reading.title, *headings, path.rpartition("/")[2]):
        if isinstance(title, str) and (kept := plain(title, 14)):
            return kept
    return "This text"


def main() -> None:
    try:
        response = answer(json.load(sys.stdin))
    except Unusable as error:
        response = {"status": "error", "error": str(error), "retry": False, "error_class": "invalid_arguments"}
    sys.stdout.buffer.write(json.dumps(response, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
