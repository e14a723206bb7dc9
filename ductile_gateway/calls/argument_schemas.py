"""JSON Schemas of commands: compiled once, then used to check the arguments of every request.

References that leave the schema are refused, so that a plugin's manifest cannot make us fetch anything; patterns are
matched in linear time, because what they are matched with comes from a model.
"""

import json
from collections.abc import Mapping
from functools import partial
from itertools import islice

import jsonschema_rs
from pydantic import JsonValue

from ductile_gateway.calls.asked import Asked
from schemas.catalog import Catalog

MOST_FLAWS = 3
LONGEST_FLAW = 300

_compiled = partial(jsonschema_rs.validator_for, offline=True, pattern_options=jsonschema_rs.RegexOptions())


class ArgumentSchemas:
    """The schemas of a catalog, in which `schema_flaw` found nothing wrong. Fills the port ArgumentCheck."""

    def __init__(self, catalog: Catalog) -> None:
        self._validators = {
            (offer.name, command.name): _compiled(command.input_schema)
            for offer in catalog.tools
            for command in offer.commands
            if command.input_schema
        }

    def flaw(self, asked: Asked) -> str | None:
        validator = self._validators.get((asked.request.tool, asked.request.tool_command))
        if validator is None or validator.is_valid(asked.request.tool_payload):
            return None
        errors = islice(validator.iter_errors(asked.request.tool_payload), MOST_FLAWS)
        return "; ".join(_told(error) for error in errors)


def schema_flaw(schema: Mapping[str, JsonValue]) -> str | None:
    """What is wrong with a JSON Schema, if anything."""
    try:
        json.dumps(schema, allow_nan=False)
        _compiled(dict(schema))
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return " ".join(str(error).split())[:LONGEST_FLAW]
    return None


def _told(error: jsonschema_rs.ValidationError) -> str:
    place = "/".join(map(str, error.instance_path))
    return f"{place}: {error.message}"[:LONGEST_FLAW] if place else error.message[:LONGEST_FLAW]
