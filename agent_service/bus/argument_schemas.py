"""Checks the arguments of planned actions against the JSON Schemas of their commands."""

from agent_service.core.brief import Brief
from agent_service.core.phases import Plan
from agent_service.usable import flaws_of_arguments


class ArgumentSchemas:
    def flaws(self, brief: Brief, plan: Plan) -> tuple[str, ...]:
        return tuple(flaw for action in plan.actions for flaw in flaws_of_arguments(brief, action))
