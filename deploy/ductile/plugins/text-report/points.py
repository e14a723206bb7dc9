"""The judgements: which measurement is a strength, which asks for a change, and how much it weighs.

Every point has its figures in it. Points under the weight of 3 are polish, not faults. The limits are those that style
guides and accessibility rules agree on: sentences of some 20 words, alternative texts, links that name their target.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from facts import Facts, words_of
from reading import Reading

POLISH = 3.0
SOME_PROSE, MUCH_PROSE = 120, 250


@dataclass(frozen=True)
class Point:
    """`said` is a sentence without its full stop; for a change also its topic, and the advice as an imperative."""

    weight: float
    said: str
    topic: str = ""
    advice: str = ""


def count(number: int, noun: str) -> str:
    """`1 word`, `2 words`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _of(part: int, whole: int, *, noun: str) -> str:
    return f"its 1 {noun}" if whole == 1 else f"of {whole} {noun}s, {part}"


def plain(text: str, words: int) -> str:
    """The first words of a text without anything that means something in Markdown, HTML or a terminal."""
    kept = re.sub(r"[^\w\s.,;:!?'\"&%/()€$£+\u2013\u2014\u2018\u2019-]|[_/]{2,}", " ", text).replace("_", " ").split()
    return " ".join(kept[:words])[:200] + (" …" if len(kept) > words else "")


def strengths(reading: Reading, facts: Facts) -> list[Point]:
    """What works, the weightiest first."""
    points = [*_strong_sentences(facts), *_strong_wording(facts), *_strong_page(facts, reading)]
    return sorted(points, key=lambda point: -point.weight)


def changes(reading: Reading, facts: Facts) -> list[Point]:
    """What to change, the weightiest first."""
    points = [*_sentences(facts), *_rhythm(facts), *_wording(facts), *_address(facts)]
    points += [*_structure(facts), *_media(facts), *(_page(reading, facts) if reading.markup else ())]
    return sorted(points, key=lambda point: -point.weight)


def shared_with_title(reading: Reading, facts: Facts) -> list[str]:
    """The most frequent content words that the title or the first heading names too."""
    named = " ".join([reading.title, *(text for _, text in reading.headings[:1])]).lower()
    return [word for word, _ in facts.frequent[:3] if any(name.startswith(word) for name in words_of(named))]


def _strong_sentences(facts: Facts) -> Iterator[Point]:
    hard = facts.readability is not None and facts.readability < 45
    if facts.sentences >= 3 and 8 <= facts.average_sentence <= 20 and not hard:
        yield Point(6, f"Sentences average {facts.average_sentence} words, a length that is easy to follow")
    if facts.readability is not None and facts.readability >= 55:
        ease = "plain English" if facts.readability >= 60 else "which a practised reader takes without effort"
        ease = "as easy as talk" if facts.readability >= 80 else ease
        yield Point(7, f"The Flesch reading ease is {facts.readability}, where 100 is easiest: {ease}")
    if facts.sentences >= 3 and 1 < facts.first_sentence <= 16:
        yield Point(4, f"The opening sentence comes to the point in {facts.first_sentence} words")


def _strong_wording(facts: Facts) -> Iterator[Point]:
    if facts.you >= 3 and facts.you > facts.we:
        yield Point(5, f"It speaks to its reader, with “you” or “your” {facts.you} times against {facts.we} of “we”")
    if facts.figures >= 3:
        yield Point(4.5, f"It is concrete, with {facts.figures} numbers to hold on to")
    if facts.words >= SOME_PROSE and facts.distinct_words / facts.words >= 0.5:
        share = round(100 * facts.distinct_words / facts.words)
        yield Point(3, f"The wording is varied: {facts.distinct_words} different words, {share} % of the text")


def _strong_page(facts: Facts, reading: Reading) -> Iterator[Point]:
    if facts.headings >= 2 and facts.words / facts.headings <= 200:
        every = round(facts.words / facts.headings)
        yield Point(5, f"With a heading for every {every} words or so, a reader finds the way at a glance")
    if facts.images > 1 and not facts.images_without_text:
        yield Point(5, f"All {facts.images} images have an alternative text or are marked as decoration")
    if facts.links >= 3 and not facts.vague_links:
        yield Point(4, f"Each of the {facts.links} links says where it leads")
    if reading.markup and len(reading.description) >= 50:
        length = len(words_of(reading.description))
        yield Point(2.5, f"The description for search results is there, in {length} words")


def _sentences(facts: Facts) -> Iterator[Point]:
    quoted = plain(facts.longest_sentence_text, 7)
    if facts.longest_sentence > 30:
        said = f"the longest sentence runs to {facts.longest_sentence} words (“{quoted}”)"
        if facts.sentences > 1:
            said += f", against an average of {facts.average_sentence}"
        weight = min(9, 5 + facts.longest_sentence / 20)
        yield Point(weight, said, "sentence length", "split it where it takes up a second thought")
    elif facts.longest_sentence > 20:
        said = f"the longest sentence has {facts.longest_sentence} words (“{quoted}”)"
        yield Point(1.5, said, "the longest sentence", "read it aloud and see what it can do without")
    if facts.readability is not None and facts.readability < 45:
        said = f"the Flesch reading ease is {facts.readability}, where 60 is plain English and 30 a specialist paper"
        yield Point(8, said, "readability", "put short, common words in place of the longest ones")
    if facts.first_sentence > 25:
        said = f"a reader has to take in {facts.first_sentence} words before the first full stop"
        yield Point(4, said, "the opening", "begin with the point and let the circumstances follow")


def _rhythm(facts: Facts) -> Iterator[Point]:
    word, times = facts.opener
    if times >= 4 and times >= facts.sentences * 0.2:
        weight = 4 if times > facts.sentences * 0.4 else 2
        said = f"{times} of the {facts.sentences} sentences begin with “{plain(word, 1)}”"
        yield Point(weight, said, "rhythm", "open some of them with the thing they are about")
    if facts.exclamations >= 3 and facts.exclamations > facts.sentences * 0.15:
        said = f"{facts.exclamations} of the {facts.sentences} sentences end in an exclamation mark"
        yield Point(5.5, said, "emphasis", "keep one at most and let the facts carry the rest")
    if facts.words >= SOME_PROSE and facts.words_in_sentences < facts.words / 2:
        said = f"only {facts.words_in_sentences} of the {facts.words} words stand in full sentences"
        yield Point(6, said, "flow", "turn the key fragments into sentences that say how things hang together")


def _wording(facts: Facts) -> Iterator[Point]:
    fillers = sum(times for _, times in facts.fillers)
    if fillers >= 3 and fillers > facts.words / 100:
        told = " and ".join(f"“{word}” {count(times, 'time')}" for word, times in facts.fillers)
        yield Point(4.5, f"it says {told}", "filler words", "strike them, since hardly a sentence will miss them")
    if facts.words >= SOME_PROSE and not facts.figures:
        said = f"{facts.words} words hold not 1 number in digits, so the claims stay general"
        yield Point(3.5, said, "evidence", "back the strongest claim with a quantity, a date or a name")
    if facts.words >= MUCH_PROSE and facts.distinct_words < facts.words * 0.33:
        said = f"{facts.words} words are made of only {facts.distinct_words} different ones"
        yield Point(2.5, said, "repetition", "merge passages that say the same thing twice")


def _address(facts: Facts) -> Iterator[Point]:
    if facts.we >= 4 and facts.we > 2 * facts.you:
        said = f"“we” and “our” come {facts.we} times, “you” and “your” {count(facts.you, 'time')}"
        yield Point(6, said, "the point of view", "recast some of these sentences from the reader's side")
    elif facts.english and facts.words >= SOME_PROSE and not facts.you:
        said = f"in {facts.words} words the reader is addressed 0 times"
        yield Point(1.5, said, "the reader", "say once, in so many words, what all this means for them")


def _structure(facts: Facts) -> Iterator[Point]:
    if facts.words < 60:
        said = f"{count(facts.words, 'word')} cannot answer what a reader will ask"
        yield Point(7, said, "substance", "add what it is, whom it is for and what to do next")
    if facts.words >= MUCH_PROSE and facts.words > 300 * facts.headings:
        said = f"{facts.words} words stand under {count(facts.headings, 'heading')}"
        yield Point(6.5, said, "structure", "set a heading wherever the subject changes")
    if facts.longest_block > 120:
        said = f"the longest runs to {facts.longest_block} words without a break"
        yield Point(5.5, said, "the paragraphs", "break it after its first conclusion")
    if facts.skipped_levels:
        said = (
            f"{count(facts.skipped_levels, 'time')} a heading skips a level, which misleads whoever navigates by them"
        )
        yield Point(3.5, said, "the order of the headings", "let each level follow from the one above it")


def _media(facts: Facts) -> Iterator[Point]:
    if missing := facts.images_without_text:
        it, has = ("it", "has") if missing == 1 else ("them", "have")
        said = f"{_of(missing, facts.images, noun='image')} {has} no alternative text, so a screen reader skips {it}"
        yield Point(6.5, said, "the images", "say in a few words what is to be seen")
    if vague := len(facts.vague_links):
        said = f"{_of(vague, facts.links, noun='link')} could lead anywhere (“{plain(facts.vague_links[0], 3)}”)"
        yield Point(5.5, said, "the links", "name the place each of them leads to")
    if facts.words >= SOME_PROSE and not facts.links:
        said = f"{facts.words} words offer 0 links to a source or a next step"
        yield Point(2, said, "where a reader can go next", "add the one link that most readers will want")


def _page(reading: Reading, facts: Facts) -> Iterator[Point]:
    if facts.top_headings != 1 and facts.words >= SOME_PROSE:
        said = f"there are {facts.top_headings} headings of the first level where 1 is expected"
        yield Point(4.5, said, "the main heading", "give the page one heading that says what all of it is about")
    if reading.title and facts.words >= SOME_PROSE and facts.frequent and not shared_with_title(reading, facts):
        words = ", ".join(f"“{word}”" for word, _ in facts.frequent[:3])
        said = f"it names 0 of the words the text returns to most ({words})"
        yield Point(3.5, said, "the title", "let it promise what the text delivers")
    missing = [name for name, given in (("title", reading.title), ("description", reading.description)) if not given]
    if missing:
        said = f"of the 2 texts that search results show, {len(missing)} is missing".replace("2 is", "2 are")
        advice = f"write one plain sentence as its {' and one as its '.join(missing)}"
        yield Point(1.5 + 1.5 * len(missing), said, "how the page is found", advice)
    if not reading.language:
        said = f"it is not declared, so a screen reader guesses how {count(facts.words, 'word')} are pronounced"
        yield Point(2, said, "the language", "name it on the html element")
