#!/usr/bin/env python3
"""Writes a critique of a text (Ductile plugin protocol v2). Standard library only, Python 3.11 or newer.

Every judgement names the figure that it rests on. No model is asked.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from reading import Facts, Reading, measure, read, words_of

READING_SPEED, SOME_PROSE = 230, 120
SIZES = ((60, "very short"), (250, "short"), (900, "medium-sized"), (2500, "long"))
TONES = {
    "constructive": ("There is good work here to build on.", "Begin with", "After that, turn to"),
    "warm": ("There is a lot to like here.", "A little care would do good to", "You might also look at"),
    "direct": ("Some things work.", "First,", "Then,"),
    "formal": ("Several qualities deserve mention.", "The first reservation concerns", "Another concerns"),
}
TONE_NAMES = {"friendly": "warm", "kind": "warm", "blunt": "direct", "harsh": "direct", "professional": "formal"}


class Unusable(Exception):
    """There is no text to report on; the message says why."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the response to a request. Raises Unusable."""
    if request["command"] == "health":
        return {"status": "ok", "result": "text-report can be run"}
    payload = (request.get("event") or request).get("payload") or {}
    text, content_type, path = _artifact(payload.get("artifact"))
    reading = read(text, content_type)
    facts = measure(reading)
    if not facts.words:
        raise Unusable("the artifact holds no readable text: 0 words outside scripts, styles and navigation")
    title, tone = _title(payload.get("title"), reading, path), _tone(str(payload.get("tone") or ""))
    report = f"{_portrait(reading, facts, title, tone)}\n\n{_improvements(facts, tone)}\n"
    figures = {name: value for name, value in asdict(facts).items() if name != "longest_sentence_text"}
    size = len(words_of(report))
    return {
        "status": "ok",
        "result": f"Wrote critique.md: 2 paragraphs, {size} words, {tone} in tone, on “{title}” "
        f"({count(facts.words, 'word')}, {count(facts.sentences, 'sentence')})",
        "output": {"paragraphs": 2, "words": size, "tone": tone, "title": title, "facts": figures},
        "artifacts": [{"name": "critique.md", "content_type": "text/markdown", "text": report}],
    }


def count(number: int, noun: str) -> str:
    """Returns texts such as `1 word` and `2 words`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def plain(text: str, words: int) -> str:
    """Returns the first words without characters that have a meaning in Markdown, HTML or a terminal."""
    kept = re.sub(r"[^\w\s.,;:!?'\"&%/()€$£+\u2013\u2014\u2018\u2019-]|[_/]{2,}", " ", text).replace("_", " ").split()
    return " ".join(kept[:words])[:200] + (" …" if len(kept) > words else "")


def _artifact(given: object) -> tuple[str, str, str]:
    """Returns text, content type and path of an artifact, which the gateway put in place of its path, or of a plain
    text."""
    if isinstance(given, dict) and isinstance(given.get("text"), str):
        return given["text"], str(given.get("content_type") or ""), str(given.get("path") or "")
    if isinstance(given, dict):
        raise Unusable("the artifact is not text: only pages and texts can be reported on")
    if isinstance(given, str) and given.strip():
        return given, "", ""
    raise Unusable("artifact is missing: name the artifact to read")


def _title(wished: object, reading: Reading, path: str) -> str:
    for title in (wished, reading.title, *reading.headings[:1], path.rpartition("/")[2]):
        if isinstance(title, str) and (kept := plain(title, 14)):
            return kept
    return "This text"


def _tone(wish: str) -> str:
    """Returns the requested tone; constructive if it is unknown."""
    wished = (TONE_NAMES.get(word, word) for word in re.findall("[a-z]+", wish.lower()))
    return next((tone for tone in wished if tone in TONES), "constructive")


def _portrait(reading: Reading, facts: Facts, title: str, tone: str) -> str:
    """Returns the first paragraph: kind and size of the text, and its strengths."""
    size = next((name for limit, name in SIZES if facts.words < limit), "very long")
    seconds = max(5, round(facts.words * 60 / READING_SPEED / 5) * 5)
    time = count(round(seconds / 60), "minute") if seconds >= 90 else f"{seconds} seconds"
    counts = [count(facts.sentences, "sentence"), count(facts.headings, "heading"), count(facts.links, "link")]
    kind = "page" if reading.markup else "text"
    known = (
        f"“{title}” is a {size} {kind} of {count(facts.words, 'word')}, about {time} of reading, "
        f"with {', '.join(counts)} and {count(facts.images, 'image')}."
    )
    works = list(_strengths(facts))[:3]
    return " ".join([known, TONES[tone][0], *(f"{one}." for one in works)] if works else [known])


def _strengths(facts: Facts) -> Iterator[str]:
    if facts.readability is not None and facts.readability >= 55:
        yield f"The Flesch reading ease is {facts.readability}, where 100 is easiest and 60 plain English"
    if facts.sentences >= 3 and 8 <= facts.average_sentence <= 20:
        yield f"Sentences average {facts.average_sentence} words, a length that is easy to follow"
    if facts.headings >= 2 and facts.words / facts.headings <= 200:
        yield f"With a heading for every {round(facts.words / facts.headings)} words or so, a reader finds the way"
    if facts.images > 1 and not facts.images_without_text:
        yield f"All {facts.images} images have an alternative text or are marked as decoration"
    if facts.links >= 3 and not facts.vague_links:
        yield f"Each of the {facts.links} links says where it leads"


def _improvements(facts: Facts, tone: str) -> str:
    """Returns the second paragraph: at most three changes."""
    _, first, then = TONES[tone]
    points = list(_changes(facts))[:3]
    if not points:
        longest = count(facts.longest_sentence, "word")
        return f"The figures ask for no repair; what could be trimmed is the longest sentence, {longest}."
    lines = (f"{topic}: {figure}. {advice}." for topic, figure, advice in points)
    return " ".join(f"{then if at else first} {one}" for at, one in enumerate(lines))


def _changes(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yields topic, figure and advice of each change, the most important first."""
    if facts.readability is not None and facts.readability < 45:
        figure = f"the Flesch reading ease is {facts.readability}, where 60 is plain English and 30 a specialist paper"
        yield "readability", figure, "Put short, common words in place of the longest ones"
    if facts.longest_sentence > 30:
        quoted = plain(facts.longest_sentence_text, 7)
        figure = f"the longest sentence runs to {facts.longest_sentence} words (“{quoted}”)"
        yield "sentence length", figure, "Split it where it takes up a second thought"
    if facts.words < 60:
        figure = f"{count(facts.words, 'word')} cannot answer what a reader will ask"
        yield "substance", figure, "Add what it is, whom it is for and what to do next"
    if missing := facts.images_without_text:
        figure = f"of {count(facts.images, 'image')}, {missing} without an alternative text"
        yield "the images", figure, "Say in a few words what is to be seen"
    if facts.words >= 2 * SOME_PROSE and facts.words > 300 * facts.headings:
        figure = f"{facts.words} words stand under {count(facts.headings, 'heading')}"
        yield "structure", figure, "Set a heading wherever the subject changes"
    if vague := facts.vague_links:
        figure = f"of {count(facts.links, 'link')}, {len(vague)} could lead anywhere (“{plain(vague[0], 3)}”)"
        yield "the links", figure, "Name the place each of them leads to"
    if facts.words >= SOME_PROSE and not facts.links:
        yield "the next step", f"{facts.words} words offer 0 links", "Add the one link that most readers will want"


def main() -> None:
    try:
        response = answer(json.load(sys.stdin))
    except Unusable as error:
        response = {"status": "error", "error": str(error), "retry": False, "error_class": "invalid_arguments"}
    sys.stdout.buffer.write(json.dumps(response, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
