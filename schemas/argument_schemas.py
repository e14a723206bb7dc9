"""Validation of arguments against the JSON Schema of their command, for the agent that plans and the executor.

A plugin brings the schema, and a model the arguments: references out of the schema are refused, patterns match in
linear time, and the number of parts is bounded, with references expanded.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
from pydantic import JsonValue

LONGEST_FLAW = 300
OBJECT = "object"
TYPES = "must be string, number, integer, boolean, array, object or null, or a list of them"
MOST_PARTS = 5_000
_DEFINITIONS = ("$defs", "definitions")
_MOVING = ("$dynamicRef", "$recursiveRef")

RefPath = frozenset[str]


def validator_of(schema: Mapping[str, JsonValue]) -> Any:
    """Returns a cached validator. Raises ValueError for an unusable schema."""
    _check_size(schema)
    try:
        return _compiled(jsonschema_rs.canonical.json.to_string(schema))
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from error


def schema_flaw(schema: Mapping[str, JsonValue]) -> str | None:
    try:
        json.dumps(schema, allow_nan=False)
        validator_of(schema)
    except jsonschema_rs.ValidationError as error:
        place = error.instance_path
        flaw = TYPES if place[-1:] == ["type"] and error.schema_path[-1:] == ["anyOf"] else error.message
        return f"{'/'.join(map(str, place))}: {flaw}"[:LONGEST_FLAW]
    except ValueError as error:
        return " ".join(str(error).split())[:LONGEST_FLAW]
    kind = schema.get("type", OBJECT)
    if kind != OBJECT and not (isinstance(kind, list) and OBJECT in kind):
        return "its type must be object: write `type: object`, and the arguments below `properties`"
    return None


def argument_flaws(validator: Any, arguments: JsonValue, *, most: int, whole: str = "") -> tuple[str, ...]:
    return tuple(_described(error, whole) for error in islice(validator.iter_errors(arguments), most))


def _check_size(schema: Mapping[str, JsonValue]) -> None:
    # an id within would begin a schema of its own, whose references lead elsewhere
    base = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
    whole = {name: part for name, part in schema.items() if name != base}
    root = {name: part for name, part in whole.items() if name not in _DEFINITIONS}
    waiting: list[tuple[object, RefPath]] = [(root, frozenset())]
    for _ in range(MOST_PARTS):
        if not waiting:
            return
        part, path = waiting.pop()
        waiting += [(below, path) for below in _below(part)]
        if isinstance(part, Mapping) and (reference := _reference(part, base)) and reference not in path:
            waiting.append((_at(whole, reference), path | {reference}))
    if waiting:
        raise ValueError(f"it has more than {MOST_PARTS} parts, each reference counted as what it stands for")


def _below(part: object) -> Iterator[object]:
    parts = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    return (one for one in parts if isinstance(one, Mapping | list))


def _reference(part: Mapping[str, object], base: str) -> str | None:
    if odd := [name for name in (base, *_MOVING) if isinstance(part.get(name), str)]:
        raise ValueError(f"a part of it has {odd[0]}: use `$ref`, which names a part by its path")
    reference = part.get("$ref")
    if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
        raise ValueError("it has a reference that is no path in it, such as #/$defs/name")
    return reference if isinstance(reference, str) else None


def _at(schema: object, reference: str) -> object:
    for name in reference.removeprefix("#").split("/")[1:]:
        key = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list):
            schema = schema[int(key)] if key.isdecimal() and int(key) < len(schema) else None
        else:
            schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Any:
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())


def _described(error: jsonschema_rs.ValidationError, whole: str) -> str:
    place, flaw = "/".join(map(str, error.instance_path)) or whole, _flaw(error)
    return (f"{place}: {flaw}" if place else flaw)[:LONGEST_FLAW]


def _flaw(error: jsonschema_rs.ValidationError) -> str:
    branches = getattr(error.kind, "context", None)
    if not branches:
        return str(error.message)
    each = (" and ".join(inner.message for inner in branch) for branch in branches)
    return f"one of these has to be mended: {', or '.join(each)}"
