"""Variants: one file that tells a scenario in several wordings, each played as a scenario of its own. Pure."""

import re
from collections.abc import Iterator
from typing import Any

_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")


def told_apart(document: Any) -> Iterator[Any]:
    """Each variant of `document`, with its texts in the places `{{name}}`; the document itself where it has none.

    Raises ValueError for a place that a variant has no text for, and for variants that are no texts by name.
    """
    variants = document.pop("variants", None) if isinstance(document, dict) else None
    if variants is None:
        yield document
        return
    if not isinstance(variants, dict) or not variants:
        raise ValueError("variants: give at least one, as a name with its texts")
    for name, texts in variants.items():
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ValueError(f"variants.{name}: give texts by name")
        told = _filled(document, texts, f"variants.{name}")
        yield {**told, "name": f"{told.get('name')}-{name}"}


def _filled(value: Any, texts: dict[str, str], where: str) -> Any:
    match value:
        case str():
            return _PLACE.sub(lambda place: _text(place[1], texts, where), value)
        case dict():
            return {key: _filled(inner, texts, where) for key, inner in value.items()}
        case list():
            return [_filled(inner, texts, where) for inner in value]
    return value


def _text(name: str, texts: dict[str, str], where: str) -> str:
    if name not in texts:
        raise ValueError(f"{where}: there is no text {name}")
    return texts[name]
