"""The HTTP call on tools: what runs may use now, and who offers it."""

from collections.abc import Callable, Sequence
from typing import Any

from agent_service.history.plain import View
from agent_service.run.ports import Skills
from groundwork.service.errors import TryAgain
from schemas.catalog import Approve, Effect, Output, ToolOffer


class CommandView(View):
    """One command of a tool: `tier` is `read` or `write`, `approve` when a person must allow it, as the operator says.

    `effect`: whether what a write does stays in the house (`local`). `input_schema` is a JSON Schema of an object.
    """

    name: str
    description: str
    tier: str
    idempotent: bool
    effect: Effect | None
    approve: Approve | None
    input_schema: dict[str, Any]


class ToolView(View):
    """A tool. `executor` is who offers it, `present` whether that one answers now.

    `timeout_s` is how long one attempt may take, in seconds; `output` is `untrusted` where results hold what strangers
    wrote; null, where nobody says, counts as that.
    """

    name: str
    description: str
    executor: str | None
    present: bool
    route: str
    timeout_s: float
    output: Output | None = None
    commands: tuple[CommandView, ...]


class ToolsView(View):
    """What runs may use, cut by `agent.tools`. `problems`: what is left out and why, or that nobody tells any tools."""

    tools: tuple[ToolView, ...]
    problems: tuple[str, ...]


class ToolCalls:
    """Its docstrings are the API's documentation. `problems` gives what is left out of the offers, and why."""

    def __init__(self, skills: Skills, problems: Callable[[], Sequence[str]] = tuple) -> None:
        self._skills = skills
        self._problems = problems

    async def list_tools(self) -> ToolsView:
        """The tools that runs may use now, by name, each with its commands and what they take."""
        try:
            offers = (await self._skills.catalog()).tools
        except TryAgain as nothing:
            return ToolsView(tools=(), problems=tuple(self._problems()) or (str(nothing),))
        present = self._skills.present()
        tools = [_tool(offer, present) for offer in sorted(offers, key=lambda offer: offer.name)]
        return ToolsView(tools=tuple(tools), problems=tuple(self._problems()))


def _tool(offer: ToolOffer, present: frozenset[str]) -> ToolView:
    told = offer.model_dump(include={"name", "description", "executor", "route", "timeout_s", "output"})
    commands = tuple(CommandView(**command.model_dump()) for command in offer.commands)
    return ToolView(present=offer.executor in present, commands=commands, **told)
