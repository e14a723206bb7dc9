"""Quotes: whether some words stand in a text, as a person would say who compares the two. Pure.

White space, typographic quotes and dashes, and the written form of `<` count as equal; nothing else does. A quote
begins and ends with whole words and whole numbers: `12` does not stand in `112`, nor in `12.5`.
"""

import html
import re
from functools import lru_cache

LONGEST = 1000
"""Characters of a quote: more does not point at anything."""
_UNSPACED = "\u0e00"
"""From this character on there are scripts that put no space between words."""
_ALIKE = ("'‘’‚‛`´", '"“”„‟«»', "-‐‑‒–—−")  # noqa: RUF001 # that is what they are here for
_WRITTEN = {char: f"[{re.escape(alike)}]" for alike in _ALIKE for char in alike} | {"<": "(?:<|&lt;|\ufe64|\uff1c)"}
_PAIRS = frozenset(('""', "“”", "„“", "''", "‘’", "``", "«»"))  # noqa: RUF001 # same
_DOTS = re.compile(r"^(?:\.\.\.|…)|(?:\.\.\.|…)$")
_WITHIN_A_WORD = re.compile(r"</?(?:a|abbr|b|code|em|i|mark|s|small|span|strong|sub|sup|u)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")
"""A reference to a number beyond all characters; one of thousands of digits could not even be read as a number."""


def stands_in(quote: str, text: str) -> bool:
    """Whether `quote` stands in `text`, or in what a reader sees of it where it is HTML."""
    pattern = _pattern(quote)
    if pattern is None:
        return False
    return bool(pattern.search(text)) or ("<" in text and bool(pattern.search(_as_read(text))))


def says_something(quote: str) -> bool:
    """Whether there is something in it to look for."""
    return _pattern(quote) is not None


@lru_cache(maxsize=64)
def _pattern(quote: str) -> re.Pattern[str] | None:
    bare = _bare(quote.replace("&lt;", "<"))
    if len(bare) > LONGEST or not any(map(str.isalnum, bare)):
        return None
    words = ("".join(_WRITTEN.get(char) or re.escape(char) for char in word) for word in bare.split())
    return re.compile(_before(bare[0]) + r"\s++".join(words) + _after(bare[-1]))


def _bare(quote: str) -> str:
    """Without marks around it, and without the dots that say that the text goes on."""
    bare = _DOTS.sub("", quote.strip()).strip()
    return _bare(bare[1:-1]) if len(bare) > 1 and bare[0] + bare[-1] in _PAIRS else bare


def _before(first: str) -> str:
    if first.isdigit():
        return r"(?<!\w)(?<!\d[.,])"
    return r"(?<!\w)" if _is_of_a_word(first) else ""


def _after(last: str) -> str:
    if last.isdigit():
        return r"(?!\w|[.,]\d)"
    return r"(?!\w)" if _is_of_a_word(last) else ""


def _is_of_a_word(char: str) -> bool:
    return char.isalnum() and char < _UNSPACED


def _as_read(text: str) -> str:
    return html.unescape(_NO_CHARACTER.sub("\ufffd", _TAG.sub(" ", _WITHIN_A_WORD.sub("", text))))
