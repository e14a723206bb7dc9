"""Four ways to put the same findings. A frame has places for a topic, what is said of it, and the advice."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Tone:
    """`wishes` are the words that ask for it; `strengths` is how many of them are told.

    `changes` opens the second paragraph, `polish` does when nothing weighs much; `frames` are for the first, second
    and third change; `nothing` stands alone where there is nothing to change.
    """

    name: str
    wishes: frozenset[str]
    strengths: int
    praise: str
    changes: str
    polish: str
    frames: tuple[str, str, str]
    closing: str
    nothing: str


def tone_named(wish: str) -> Tone:
    """The tone that the wish asks for; constructive where it asks for none that is known."""
    wished = set(re.findall(r"[a-z]+", wish.lower()))
    return next((tone for tone in TONES if wished & tone.wishes), TONES[0])


TONES = (
    Tone(
        "constructive",
        frozenset({"constructive", "balanced", "helpful", "fair"}),
        3,
        "There is good work here to build on.",
        "{Number} would make it stronger.",
        "Little needs repair; {number} would polish it.",
        (
            "Begin with {topic}: {said}. {Advice}.",
            "After that, turn to {topic}: {said}. {Advice}.",
            "Finally, consider {topic}: {said}. {Advice}.",
        ),
        "If there is time for only one of them, make it the first.",
        "The measurements ask for no repair; if anything is to be trimmed, it is the longest sentence, at {longest}.",
    ),
    Tone(
        "warm",
        frozenset({"warm", "friendly", "kind", "gentle", "encouraging", "supportive", "positive"}),
        3,
        "There is a lot to like here.",
        "{Number} could lift it further.",
        "It hardly needs help; {number} might round it off.",
        (
            "A little care for {topic} would go a long way: {said}. It might help to {advice}.",
            "You might also look at {topic}: {said}. Perhaps {advice}.",
            "And if there is time left, think of {topic}: {said}. You could {advice}.",
        ),
        "None of this takes away from what already works.",
        "There is nothing to repair; keep an eye on the longest sentence, at {longest}, and leave the rest as it is.",
    ),
    Tone(
        "direct",
        frozenset({"direct", "blunt", "harsh", "critical", "strict", "honest", "tough", "frank"}),
        2,
        "Some things work.",
        "It needs {number}.",
        "No serious fault, but {number} still to make.",
        (
            "First, {topic}: {said}. {Advice}.",
            "Second, {topic}: {said}. {Advice}.",
            "Third, {topic}: {said}. {Advice}.",
        ),
        "Do the first one before anything else.",
        "The measurements show no fault; the longest sentence, at {longest}, is the only thing left to cut.",
    ),
    Tone(
        "formal",
        frozenset({"formal", "professional", "academic", "neutral", "objective"}),
        3,
        "Several qualities deserve mention.",
        "{Number} may be recommended.",
        "No substantial reservation arises; {number} may nevertheless be considered.",
        (
            "The first concerns {topic}: {said}. The author is advised to {advice}.",
            "The second concerns {topic}: {said}. It would be preferable to {advice}.",
            "The third concerns {topic}: {said}. The author may wish to {advice}.",
        ),
        "The first of these appears the most pressing.",
        "The measurements give no ground for reservations; the longest sentence, at {longest}, may be revised first.",
    ),
)
