"""What is wrong with a manifest, in words that say the mend: for whoever writes a plugin. Pure."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from schemas.flaws import LONGEST_PLACE, rule_of

Keys = tuple[int | str, ...]

WOULD_DO = {
    "manifest_spec": "ductile.plugin",
    "manifest_version": "1",
    "protocol": "2",
    "name": "my-tool",
    "version": "0.1.0",
    "entrypoint": "run.py",
    "commands": "[{name: handle, type: read}]",
    "commands.name": "handle",
    "commands.type": "read",
}
"""By key, without the numbers of a list."""
SAYS_MORE = {"commands.type": ", or `type: write` where it changes something"}
ALIKE = 0.75
"""How much a key has to look like another to be taken for it."""


def told(error: ValidationError, document: object, would_do: Mapping[str, str] = WOULD_DO) -> str:
    if not isinstance(document, dict):
        return "it holds no `key: value` lines: docs/TOOLS.md shows what it needs"
    every = error.errors(include_url=False, include_input=False)
    # A list whose items are flawed is told to be empty, too.
    found = [flaw for flaw in every if flaw["type"] != "too_short" or not _has_inner(flaw["loc"], every)]
    return "; ".join(_told(flaw, document, would_do) for flaw in found)


def misspelt(document: object, known: type[BaseModel], *, also: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Keys of the document that look like one that is known, which it does not have; with that one."""
    names = {*known.model_fields, *also}
    given = [key for key in document if isinstance(key, str)] if isinstance(document, dict) else []
    for key in given:
        close = difflib.get_close_matches(key, names.difference(given), n=1, cutoff=ALIKE)
        if key not in names and close:
            yield key, close[0]


def _has_inner(place: Keys, flaws: Sequence[Any]) -> bool:
    return any(len(flaw["loc"]) > len(place) and flaw["loc"][: len(place)] == place for flaw in flaws)


def _told(flaw: Any, document: object, would_do: Mapping[str, str]) -> str:
    place: Keys = flaw["loc"]
    said = rule_of(flaw["msg"])
    named, key = ".".join(map(str, place))[:LONGEST_PLACE], ".".join(part for part in place if isinstance(part, str))
    if key not in would_do or not isinstance(place[-1], str):
        return f"{named or 'manifest'}: {said}"
    line = f"`{place[-1]}: {would_do[key]}`{SAYS_MORE.get(key, '')}"
    if flaw["type"] == "missing":
        return f"{named} is missing: add {line}{_instead_of(place, document)}"
    if flaw["type"] == "literal_error":
        return f"{named} is something else: write {line}"
    return f"{named}: {said}, such as {line}"


def _instead_of(place: Keys, document: object) -> str:
    section = document
    for part in place[:-1]:
        try:
            section = section[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return ""
    given = [key for key in section if isinstance(key, str)] if isinstance(section, dict) else []
    close = difflib.get_close_matches(str(place[-1]), given, n=1, cutoff=ALIKE)
    return f" (is `{close[0]}` a misspelling of it?)" if close and close[0] != place[-1] else ""
