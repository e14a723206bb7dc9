"""Arguments against the JSON Schema of their command: the same where they are planned and where they are carried out.

References that leave the schema are refused and patterns are matched in linear time: the schema comes with a plugin,
and what it is held against comes from a model.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs
from pydantic import JsonValue

LONGEST_FLAW = 300


def validator_of(schema: Mapping[str, JsonValue]) -> Any:
    """Compiled once for each schema. Raises ValueError for one that cannot be used."""
    try:
        return _compiled(jsonschema_rs.canonical.json.to_string(schema))
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from error


def schema_flaw(schema: Mapping[str, JsonValue]) -> str | None:
    """Why arguments cannot be checked against `schema`; None when they can."""
    try:
        json.dumps(schema, allow_nan=False)
        validator_of(schema)
    except ValueError as error:
        return " ".join(str(error).split())[:LONGEST_FLAW]
    return None


def argument_flaws(validator: Any, arguments: JsonValue, *, most: int, whole: str = "") -> tuple[str, ...]:
    """The first flaws of `arguments`, each with its place; `whole` names the place of all of them."""
    return tuple(_told(error, whole) for error in islice(validator.iter_errors(arguments), most))


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Any:
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())


def _told(error: jsonschema_rs.ValidationError, whole: str) -> str:
    place, flaw = "/".join(map(str, error.instance_path)) or whole, _flaw(error)
    return (f"{place}: {flaw}" if place else flaw)[:LONGEST_FLAW]


def _flaw(error: jsonschema_rs.ValidationError) -> str:
    """Of a choice (`anyOf`, `oneOf`) what is wrong with each that can be chosen."""
    branches = getattr(error.kind, "context", None)
    if not branches:
        return str(error.message)
    each = (" and ".join(inner.message for inner in branch) for branch in branches)
    return f"one of these has to be mended: {', or '.join(each)}"
