"""Samples in schemas/samples: one file per event, version and variant, which must always parse.

Samples are added, never changed or removed. Files named `rfc103` are RFC-103's own examples.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

from schemas import generate

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

PATHS = sorted(generate.SAMPLES.glob("*.json"))


def title(path: Path) -> str:
    return path.stem


def event_of(path: Path) -> str:
    return next(name for name in generate.MODELS if path.name.startswith(f"{name}."))


def body(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def changed(event: str, **payload: Any) -> str:
    """The event's first sample with these payload fields changed, as JSON (NaN and infinities by name)."""
    sample = body(generate.SAMPLES / f"{event}.{generate.VERSION}.json")
    return json.dumps(sample | {"payload": sample["payload"] | payload})


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict) and isinstance(node.get("$ref"), str):
        yield node["$ref"]
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from refs(part)


def at(document: Any, ref: str) -> Any:
    """Target of a local reference. Raises KeyError."""
    for token in ref.removeprefix("#/").split("/"):
        document = document[token]
    return document


@cache
def published(event: str) -> jsonschema_rs.Draft202012Validator:
    """Validator of the event's generated JSON Schema, formats included."""
    schema = json.loads((generate.GENERATED / f"{event}.{generate.VERSION}.json").read_bytes())
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
