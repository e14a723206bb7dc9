"""Who did it, as one readable text for the journal: what is known of a caller, and what it says of itself. Pure.

Such as `token ops, os user ann`, or `bus, says "ann"`: a caller's own word is in quotation marks, which no such word
can bring along.
"""

import re

LONGEST_WORD = 100
"""Characters of a caller's own word that are kept."""

_OF_OURS = re.compile(r"[\"“”„\s]+")


def by(*known: str, says: str | None = None, repeated_by: str | None = None) -> str:
    """What is `known`, and the own word: who a message says it is from (`says`), or is sent again by."""
    own = {"says": says, "sent again by": repeated_by}
    return ", ".join((*filter(None, known), *(f'{verb} "{_own(word)}"' for verb, word in own.items() if word)))


def _own(word: str) -> str:
    return _OF_OURS.sub(" ", word[:LONGEST_WORD]).replace(",", ";").strip()
