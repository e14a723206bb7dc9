"""What the operator of the agent says of tools, over what their executors declare: which commands a person must allow
first, and whose results hold what strangers wrote. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.catalog import Approve, ToolCommand, ToolOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversight:
    """`approve`: by the name of a tool, or of one command (`mail.send`), which comes before that of its tool."""

    approve: Mapping[str, Approve] = field(default_factory=dict)
    untrusted: frozenset[str] = frozenset()

    def over(self, offer: ToolOffer) -> ToolOffer:
        """The offer as runs get it."""
        changed: dict[str, object] = {}
        commands = tuple(self._ruled(offer.name, command) for command in offer.commands)
        if commands != offer.commands:
            changed["commands"] = commands
        if offer.name in self.untrusted:
            changed["output"] = "untrusted"
        return offer.model_copy(update=changed) if changed else offer

    def unknown(self, offers: Iterable[ToolOffer]) -> tuple[str, ...]:
        """What is named here and offered by nobody: most likely misspelt, and then without any effect."""
        tools = {offer.name: offer for offer in offers}
        commands = {f"{name}.{command.name}" for name, offer in tools.items() for command in offer.commands}
        return tuple(sorted({*self.approve, *self.untrusted} - commands - tools.keys()))

    def _ruled(self, tool: str, command: ToolCommand) -> ToolCommand:
        rule = self.approve.get(f"{tool}.{command.name}") or self.approve.get(tool)
        return command.model_copy(update={"approve": rule}) if rule else command
