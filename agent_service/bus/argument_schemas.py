"""Checks the arguments of a planned action against the JSON Schema of its command.

References that leave the schema are refused and patterns are matched in linear time: the schema comes with a plugin,
and what it is held against comes from a model.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs
from pydantic import JsonValue

from agent_service.core.phases import Plan
from agent_service.core.state import Brief

MOST_FLAWS = 5
LONGEST_FLAW = 300


class ArgumentSchemas:
    """Fills ArgumentCheck. A tool that is not on offer has no schema: that flaw is the core's to find."""

    def flaws(self, brief: Brief, plan: Plan) -> tuple[str, ...]:
        command = brief.command(plan.action)
        if command is None or not command.input_schema:
            return ()
        try:
            validator = _validator_of(command.input_schema)
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            return (f"the schema of {plan.action.tool} cannot be used: {error}"[:LONGEST_FLAW],)
        return tuple(_told(error) for error in islice(validator.iter_errors(plan.action.arguments), MOST_FLAWS))


def schema_flaw(schema: Mapping[str, JsonValue]) -> str | None:
    """Why arguments cannot be checked against `schema`; None when they can."""
    try:
        _validator_of(schema)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return str(error)
    return None


def _validator_of(schema: Mapping[str, JsonValue]) -> Any:
    return _validator(jsonschema_rs.canonical.json.to_string(schema))


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())


def _told(error: jsonschema_rs.ValidationError) -> str:
    place = "/".join(map(str, error.instance_path)) or "arguments"
    return f"{place}: {error.message}"[:LONGEST_FLAW]
