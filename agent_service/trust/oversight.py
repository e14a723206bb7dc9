"""Operator's rules over the executors' tools: required approvals, and untrusted results. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import field

from schemas.catalog import Approve, ToolCommand, ToolOffer
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversight:
    """`approve`: by tool or command (`mail.send`); a command wins. `untrusted`: tools. `trusted`: tools or commands."""

    approve: Mapping[str, Approve] = field(default_factory=dict)
    untrusted: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()

    def over(self, offer: ToolOffer) -> ToolOffer:
        changed: dict[str, object] = {}
        commands = tuple(self._ruled(offer.name, command) for command in offer.commands)
        if commands != offer.commands:
            changed["commands"] = commands
        if offer.name in self.untrusted or offer.name in self.trusted:
            changed["output"] = "untrusted" if offer.name in self.untrusted else "trusted"
        return offer.model_copy(update=changed) if changed else offer

    def unknown(self, offers: Iterable[ToolOffer]) -> tuple[str, ...]:
        """Names in the rules that are not on offer, most likely misspelt."""
        tools = {offer.name: offer for offer in offers}
        commands = {f"{name}.{command.name}" for name, offer in tools.items() for command in offer.commands}
        return tuple(sorted({*self.approve, *self.untrusted, *self.trusted} - commands - tools.keys()))

    def _ruled(self, tool: str, command: ToolCommand) -> ToolCommand:
        name = f"{tool}.{command.name}"
        rule = self.approve.get(name) or self.approve.get(tool)
        changed: dict[str, object] = {"approve": rule} if rule else {}
        if tool in self.untrusted:
            changed |= {"output": "untrusted"} if command.output else {}  # an executor does not overrule it
        elif name in self.trusted:
            changed["output"] = "trusted"
        return command.model_copy(update=changed) if changed else command


def undeclared(offers: Iterable[ToolOffer]) -> tuple[str, ...]:
    """Tools whose results are untrusted only because their output is not declared."""
    silent = (offer for offer in offers if offer.output is None)
    return tuple(sorted(offer.name for offer in silent if any(command.output is None for command in offer.commands)))
