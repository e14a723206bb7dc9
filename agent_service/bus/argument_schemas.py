"""Checks the arguments of a planned action against the JSON Schema of its command."""

from agent_service.core.phases import Plan
from agent_service.core.state import Brief
from schemas.argument_schemas import LONGEST_FLAW, argument_flaws, validator_of

MOST_FLAWS = 5


class ArgumentSchemas:
    """Fills ArgumentCheck. A tool that is not on offer has no schema: that flaw is the core's to find."""

    def flaws(self, brief: Brief, plan: Plan) -> tuple[str, ...]:
        command = brief.command(plan.action)
        if command is None or not command.input_schema:
            return ()
        try:
            validator = validator_of(command.input_schema)
        except ValueError as error:
            return (f"the schema of {plan.action.tool} cannot be used: {error}"[:LONGEST_FLAW],)
        return argument_flaws(validator, plan.action.arguments, most=MOST_FLAWS, whole="arguments")
