"""Checks replies of models by length and command schemas."""

from agent_service.core.brief import Brief
from agent_service.core.phases import Action
from schemas.argument_schemas import LONGEST_FLAW, argument_flaws, validator_of

MOST_BYTES = 128 * 1024
"""Bytes of a reply: a request must fit into a message (1 MiB), and the journal is kept for ever."""
MOST_FLAWS = 8


def flaws_of_arguments(brief: Brief, action: Action) -> tuple[str, ...]:
    command = brief.command(action)
    if command is None or not command.input_schema:
        return ()
    try:
        validator = validator_of(command.input_schema)
    except ValueError as error:
        return (f"the schema of {action.tool} cannot be used: {error}"[:LONGEST_FLAW],)
    return argument_flaws(validator, action.arguments, most=MOST_FLAWS, whole="arguments")
