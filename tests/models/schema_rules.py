"""Limits of Anthropic's structured outputs on a JSON Schema, from the vendor's documentation and error messages.

No open objects, no limits on numbers, lengths and counts; at most 16 parameters with a union type and 24 optional
ones. References are allowed, and ours have none.
"""

from collections.abc import Iterator
from typing import Any

MOST_UNIONS, MOST_OPTIONAL = 16, 24
_COMMON = {"type", "enum", "const", "anyOf", "allOf", "description", "title", "default"}
KEYWORDS = _COMMON | {"properties", "required", "additionalProperties", "items", "minItems", "format", "pattern"}
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}


class Refused(ValueError):
    """The schema is not taken."""


def check(schema: dict[str, Any]) -> None:
    unions = optional = 0
    for node in _nodes(schema):
        _check_node(node)
        unions += "anyOf" in node or isinstance(node.get("type"), list)
        optional += len(set(node.get("properties", ())) - set(node.get("required", ())))
    if unions > MOST_UNIONS:
        raise Refused(f"Schemas contains too many parameters with union types ({unions}; limit: {MOST_UNIONS})")
    if optional > MOST_OPTIONAL:
        raise Refused(f"Schemas contains too many optional parameters ({optional}; limit: {MOST_OPTIONAL})")


def _check_node(node: dict[str, Any]) -> None:
    if unknown := sorted(node.keys() - KEYWORDS):
        raise Refused(f"For {node.get('type')!r} type, property {unknown[0]!r} is not supported")
    if (node.get("type") == "object" or "properties" in node) and node.get("additionalProperties") is not False:
        raise Refused("For 'object' type, 'additionalProperties' must be explicitly set to false")
    if node.get("minItems", 0) not in (0, 1):
        raise Refused("For 'array' type, 'minItems' values other than 0 or 1 are not supported")
    if node.get("format", "date") not in FORMATS:
        raise Refused(f"format {node['format']!r} is not supported")
    if any(isinstance(value, (dict, list)) for value in node.get("enum", ())):
        raise Refused("enum values must be strings, numbers, booleans or null")


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    items = [node["items"]] if "items" in node else []
    for inner in [*node.get("properties", {}).values(), *items, *node.get("anyOf", ()), *node.get("allOf", ())]:
        yield from _nodes(inner)
