"""Checks the arguments of a planned action against the JSON Schema of its command."""

from functools import lru_cache

import jsonschema_rs

from agent_service.core.phases import Plan
from agent_service.core.state import Brief

MOST_FLAWS = 5


class ArgumentSchemas:
    """Fills ArgumentCheck. A tool that is not on offer has no schema: that flaw is the core's to find."""

    def flaws(self, brief: Brief, plan: Plan) -> tuple[str, ...]:
        command = brief.command(plan.action)
        if command is None or not command.input_schema:
            return ()
        validator = _validator(jsonschema_rs.canonical.json.to_string(command.input_schema))
        errors = list(validator.iter_errors(plan.action.arguments))[:MOST_FLAWS]
        return tuple(f"{'/'.join(map(str, e.instance_path)) or 'arguments'}: {e.message}"[:300] for e in errors)


@lru_cache(maxsize=256)
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema)
