"""Two paragraphs made of measurements: what the text is and what works, then what to change."""

from facts import Facts
from points import POLISH, Point, changes, count, shared_with_title, strengths
from reading import Reading
from tones import Tone

READING_SPEED, ENOUGH_TO_TELL, BRIEF = 230, 20, 250
NUMBERS = ("no change", "one change", "two changes", "three changes")
SIZES = ((60, "very short"), (250, "short"), (900, "medium-sized"), (2500, "long"))


def critique(reading: Reading, facts: Facts, *, title: str, tone: Tone) -> str:
    """Markdown of exactly two paragraphs. The text has at least one word."""
    first = [_portrait(reading, facts, title=title), _centre(reading, facts), _praise(reading, facts, tone=tone)]
    second = _demands(changes(reading, facts)[:3], facts, tone=tone)
    return f"{' '.join(filter(None, first))}\n\n{second}\n"


def _portrait(reading: Reading, facts: Facts, *, title: str) -> str:
    kind = "page" if reading.markup else "text"
    size = next((name for limit, name in SIZES if facts.words < limit), "very long")
    seconds = facts.words * 60 / READING_SPEED
    time = count(round(seconds / 60), "minute") if seconds >= 90 else f"{max(5, round(seconds / 5) * 5)} seconds"
    parts = (
        (facts.sentences, "full sentence"),
        (facts.headings, "heading"),
        (facts.links, "link"),
        (facts.images, "image"),
    )
    told = [count(number, noun) for number, noun in parts if number] or ["0 full sentences"]
    return (
        f"“{title}” is a {size} {kind} of {count(facts.words, 'word')}, about {time} of reading, with {_listed(told)}."
    )


def _centre(reading: Reading, facts: Facts) -> str:
    if not facts.english and facts.words >= ENOUGH_TO_TELL:
        return "It does not seem to be in English, so its readability and its choice of words are not judged here."
    if len(facts.frequent) < 2 or facts.frequent[0][1] < 3:
        return ""
    (word, times), *others = facts.frequent[:3]
    told = [f"“{word}” ({times} times)", *(f"“{other}” ({count})" for other, count in others)]
    shared = len(shared_with_title(reading, facts))
    promise = f"; its title names {shared} of these {len(told)}, so it keeps what it promises" if shared else ""
    return f"It turns on {_listed(told)}{promise}."


def _praise(reading: Reading, facts: Facts, *, tone: Tone) -> str:
    told = strengths(reading, facts)[: tone.strengths]
    if not told:
        return f"Its plainest virtue is brevity: {count(facts.words, 'word')}." if facts.words < BRIEF else ""
    return " ".join([tone.praise, *(f"{point.said}." for point in told)])


def _demands(points: list[Point], facts: Facts, *, tone: Tone) -> str:
    if not points:
        return tone.nothing.format(longest=count(facts.longest_sentence, "word"))
    number = NUMBERS[len(points)]
    opening = tone.changes if points[0].weight >= POLISH else tone.polish
    told = [opening.format(number=number, Number=_capital(number))]
    for frame, point in zip(tone.frames, points, strict=False):
        told.append(
            frame.format(topic=point.topic, said=point.said, advice=point.advice, Advice=_capital(point.advice))
        )
    return " ".join([*told, tone.closing] if len(points) > 1 else told)


def _listed(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
