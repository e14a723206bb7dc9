"""Reads and writes the SMT-LIB 2 that a problem needs: declarations, definitions, assertions.

z3's reader also executes commands, such as one that writes to a file. It gets only commands of `KEPT`, in tokens that
every reader reads alike.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

Term: TypeAlias = str | tuple["Term", ...]
"""A token, or a list of terms."""

DEEPEST, LONGEST_SHOWN = 200, 80
KEPT = frozenset(
    {
        "declare-const", "declare-fun", "declare-sort", "declare-datatype", "declare-datatypes",
        "define-const", "define-fun", "define-fun-rec", "define-funs-rec", "define-sort",
    }
)  # fmt: skip
IGNORED = re.compile("check-sat|get-[a-z-]+|set-(logic|option|info)|echo|exit")
"""Commands that control a solver. They have no effect here."""

# ASCII alone, and no backslash: what some readers take for an escape ends a text for others.
TOKEN = re.compile(
    r"""\s+ | ;[^\n]* |
    (?P<token> [()] | "(?:[\t\n\r\x20\x21\x23-\x5b\x5d-\x7e]|"")*" | \|[\t\n\r\x20-\x5b\x5d-\x7b\x7d\x7e]*\|
    | [A-Za-z0-9~!@$%^&*_+=<>.?/:\#-]+ )""",
    re.VERBOSE,
)


def read(text: str) -> list[Term]:
    """Returns the terms of a text. Raises ValueError with the line."""
    open_lists: list[tuple[int, list[Term]]] = [(1, [])]
    for line, sign in _tokens(text):
        if sign == "(":
            open_lists.append((line, []))
        elif sign != ")":
            open_lists[-1][1].append(sign)
        elif len(open_lists) > 1:
            _, ended = open_lists.pop()
            open_lists[-1][1].append(tuple(ended))
        else:
            raise ValueError(f"line {line}: a closing parenthesis too many")
        if len(open_lists) > DEEPEST:
            raise ValueError(f"line {line}: lists are nested deeper than {DEEPEST}")
    if len(open_lists) > 1:
        raise ValueError(f"line {open_lists[-1][0]}: a parenthesis is not closed")
    return open_lists[0][1]


def written(term: Term) -> str:
    """Returns the term as text."""
    return term if isinstance(term, str) else f"({' '.join(map(written, term))})"


def script(text: str) -> tuple[list[Term], list[tuple[str | None, Term]]]:
    """Returns declarations and definitions of a script, and its assertions with their names. Raises ValueError."""
    kept: list[Term] = []
    assertions: list[tuple[str | None, Term]] = []
    for command in read(text):
        match command:
            case ("assert", formula):
                assertions.append(_named(formula))
            case (str() as verb, *_) if verb in KEPT:
                kept.append(command)
            case (str() as verb, *_) if IGNORED.fullmatch(verb):
                pass
            case _:
                raise ValueError(f"{_shown(command)} cannot be used: only declarations, definitions and assertions are")
    return kept, assertions


def _shown(term: Term) -> str:
    text = written(term)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _named(formula: Term) -> tuple[str | None, Term]:
    """Reads `(! formula :named name)`."""
    match formula:
        case ("!", body, *attributes):
            names = [name for key, name in pairwise(attributes) if key == ":named"]
            return (names[0].strip("|") if names and isinstance(names[0], str) else None), body
    return None, formula


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    at, line = 0, 1
    while at < len(text):
        found = TOKEN.match(text, at)
        if not found:
            raise ValueError(
                f"line {line}: {text[at : at + 20]!r} is nothing that can be read here (ASCII, no backslash)"
            )
        if found["token"]:
            yield line, found["token"]
        line += found[0].count("\n")
        at = found.end()
