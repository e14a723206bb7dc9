"""Makes the catalog of tools from plugin manifests and the configuration.

A tool is a plugin with the chosen commands, or with all but housekeeping. Without a configuration every plugin is a
tool of the same name. Our own routes are never on offer (RFC-103: no recursive agents).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ductile_gateway.plugins.manifest import PluginCommand, PluginDescription
from schemas import subjects
from schemas.argument_schemas import schema_flaw
from schemas.catalog import Approve, Catalog, Effect, Output, ToolCommand, ToolOffer
from schemas.fields import ToolName, validation_flaws

HOUSEKEEPING = frozenset({"health", "init"})
"""Commands of the plugin protocol that are not for agents, unless chosen."""


class CommandChoice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    approve: Approve | None = None
    """When a person has to allow a call; `untrusted`: once the run holds untrusted content."""
    effect: Effect | None = None
    """A write acts inside this system (`local`) or outside (`external`)."""


class ToolChoice(CommandChoice):
    """One tool of the configuration. Default of `plugin`: the tool's name; of `commands`: all but housekeeping."""

    plugin: ToolName | None = None
    commands: frozenset[ToolName] | dict[ToolName, CommandChoice | None] | None = Field(default=None, min_length=1)
    """A list of names, or settings by name."""
    output: Output | None = None
    description: str | None = None
    timeout_s: float | None = Field(default=None, gt=0, le=86400)
    concurrency: int | None = Field(default=None, ge=1)
    on_rerun: Literal["tell", "escalate"] = "tell"
    """After Ductile itself ran a write more than once: `tell` says so in the result, `escalate` asks a person."""

    def of(self, command: PluginCommand) -> ToolCommand:
        """Settings of the command come before those of its tool, and these before the manifest."""
        chosen = self.commands.get(command.name) if isinstance(self.commands, dict) else None
        alone = chosen or CommandChoice()
        return ToolCommand(
            name=command.name,
            description=command.description,
            tier=command.type,
            idempotent=command.idempotent,
            effect=alone.effect or self.effect or command.effect,
            approve=alone.approve or self.approve,
            input_schema=command.input_schema,
        )


def make_catalog(
    manifests: Mapping[str, PluginDescription],
    choices: Mapping[str, ToolChoice] | None,
    *,
    timeout_s: float,
) -> tuple[Catalog, tuple[str, ...]]:
    """Returns the catalog, and problems that keep tools or commands out of it. `timeout_s`: default."""
    if choices is None:
        choices = {name: ToolChoice() for name in manifests}
    found = [
        one
        for name, choice in sorted(choices.items())
        for one in _offers_of(name, choice, manifests.get(choice.plugin or name), timeout_s)
    ]
    offers = [one for one in found if isinstance(one, ToolOffer)]
    problems = tuple(f"tool {one}" for one in found if isinstance(one, str))
    content = [offer.model_dump(mode="json") for offer in offers]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    revision = f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return Catalog(revision=revision, tools=tuple(offers)), problems


def _offers_of(
    name: str, choice: ToolChoice, manifest: PluginDescription | None, timeout_s: float
) -> Iterator[ToolOffer | str]:
    plugin = choice.plugin or name
    if not subjects.OUR_OWN_ROUTES.isdisjoint((name, plugin)):
        yield f"{name}: an agent must not start an agent through {plugin}, so it is left out"
    elif manifest is None:
        yield f"{name}: there is no plugin {plugin}: install it or take the tool out"
    else:
        try:
            found = list(_commands(name, choice, manifest))
            yield from (one for one in found if isinstance(one, str))
            if commands := tuple(one for one in found if isinstance(one, ToolCommand)):
                yield ToolOffer(
                    name=name,
                    route=manifest.name,
                    description=choice.description or manifest.description,
                    commands=commands,
                    timeout_s=choice.timeout_s or timeout_s,
                    output=choice.output or manifest.output,
                    continues=manifest.continues,
                    echoes_capability=True,
                )
        except ValidationError as error:
            yield f"{name}: its manifest or its settings cannot be told on the bus: {validation_flaws(error)}"


def _commands(tool: str, choice: ToolChoice, manifest: PluginDescription) -> Iterator[ToolCommand | str]:
    available = {command.name for command in manifest.commands}
    if not choice.commands and available <= HOUSEKEEPING:
        only = f"plugin {manifest.name} has only {', '.join(sorted(available))}, by which Ductile looks after it"
        yield f"{tool}: {only}: give it a command for agents, such as handle"
    for name in sorted(choice.commands or available - HOUSEKEEPING):
        command = manifest.command(name)
        if command is None:
            yield f"{tool}: plugin {manifest.name} has no command {name}; it has {', '.join(sorted(available))}"
        elif flaw := schema_flaw(command.input_schema):
            yield f"{tool}: the input_schema of command {name} cannot be used: {flaw}"
        else:
            yield choice.of(command)


def difference(before: Catalog, now: Catalog) -> dict[str, list[str]]:
    old, new = ({offer.name: offer for offer in catalog.tools} for catalog in (before, now))
    changed = [name for name in old.keys() & new.keys() if old[name] != new[name]]
    return {"new": sorted(new.keys() - old.keys()), "gone": sorted(old.keys() - new.keys()), "changed": sorted(changed)}
