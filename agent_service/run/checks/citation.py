"""Citation check: whether a quote stands in a text.

White space, typographic quotes and dashes, and the written form of `<` count as equal; an invisible character counts
by its sign. A quote begins and ends with whole words and numbers: `12` is not in `112` or `12.5`. Both texts are
folded to one form with marked word borders, so the search is linear in the text.
"""

import html
import re

from groundwork.service.invisible import with_signs, without_hidden

LONGEST = 1000
LEAST = 4
"""Letters and digits of a quote. Fewer match by chance, and count only as a whole line or value, such as `42` or `yes`.
"""
LONGEST_LINE = 80
"""Characters of a line that may be one such quote."""
_UNSPACED = "\u0e00"
"""From this character on there are scripts that put no space between words."""
_BORDER = "\1"
_WORD = re.compile(r"(\w+(?:(?<=\d)[.,](?=\d)\w+)*)")
_ALIKE = {"'": "‘’‚‛`´", '"': "“”„‟«»", "-": "‐‑‒–—−", "<": "\ufe64\uff1c", " ": _BORDER}  # noqa: RUF001 # that is what they are here for
_FOLDED = str.maketrans({char: one for one, alike in _ALIKE.items() for char in alike})
_PAIRS = frozenset(('""', "“”", "„“", "''", "‘’", "``", "«»"))  # noqa: RUF001 # same
_ENDS = ".,:;!?"
_DOTS = re.compile(r"^(?:\.\.\.|…)|(?:\.\.\.|…)$")
_WITHIN_A_WORD = re.compile(r"</?(?:a|abbr|b|code|em|i|mark|s|small|span|strong|sub|sup|u)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_OF_A_FIELD = re.compile(r'": ?[\[{"]*[^\s\[\]{}",:]')
_NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")
"""A number beyond all characters: Python cannot read one of thousands of digits."""


def stands_in(quote: str, text: str) -> bool:
    return is_a_line(quote, text) if is_short(quote) else is_among(quote, readings(text))


def is_short(quote: str) -> bool:
    return sum(2 if char >= _UNSPACED else 1 for char in _bare(quote) if char.isalnum()) < LEAST


def is_a_line(quote: str, text: str) -> bool:
    sought = _line(quote) if says_something(quote) else ""
    lines = (line for seen in _as_seen(text) for line in seen.splitlines() if len(line) <= LONGEST_LINE)
    return bool(sought) and any(_line(line) == sought for line in lines)


def is_among(quote: str, texts: tuple[str, ...]) -> bool:
    sought = _sought(quote) if says_something(quote) else ""
    return bool(sought) and any(sought in text for text in texts)


def readings(text: str) -> tuple[str, ...]:
    """The text as it is, and as a reader sees it where it is HTML."""
    forms = dict.fromkeys(form for each in _as_seen(text) for form in (with_signs(each), without_hidden(each)))
    return tuple(_with_borders(_alike(form)) for form in forms)


def says_something(quote: str) -> bool:
    bare = _bare(quote)
    return len(bare) <= LONGEST and any(map(str.isalnum, bare))


def names_a_field(quote: str) -> bool:
    return bool(_OF_A_FIELD.search(_alike(_bare(quote))))


def _sought(quote: str) -> str:
    alike = _alike(_bare(with_signs(quote)))
    folded = _with_borders(alike)
    folded = folded if _is_whole(alike[0]) else folded.removeprefix(_BORDER)
    return folded if _is_whole(alike[-1]) else folded.removesuffix(_BORDER)


def _line(text: str) -> str:
    return _alike(_bare(with_signs(text).rstrip(_ENDS)).rstrip(_ENDS))


def _alike(text: str) -> str:
    return " ".join(text.replace("&lt;", "<").translate(_FOLDED).split())


def _with_borders(alike: str) -> str:
    return _BORDER.join(_WORD.split(alike))


def _bare(quote: str) -> str:
    bare, marked = quote.replace("&lt;", "<"), True
    while marked:
        bare = _DOTS.sub("", bare.strip()).strip()
        marked = len(bare) > 1 and bare[0] + bare[-1] in _PAIRS
        bare = bare[1:-1] if marked else bare
    return bare


def _is_whole(char: str) -> bool:
    return char.isdigit() or (char.isalnum() and char < _UNSPACED)


def _as_seen(text: str) -> tuple[str, ...]:
    return (text, _as_read(text)) if "<" in text else (text,)


def _as_read(text: str) -> str:
    return html.unescape(_NO_CHARACTER.sub("\ufffd", _TAG.sub(" ", _WITHIN_A_WORD.sub("", text))))
