"""Plugins and pipelines of a Ductile as manifests, for the catalog of tools. Pure.

Only plugins of configured tools are read: a Ductile lists disabled plugins too. The configuration says which commands
are idempotent. A pipeline, or a route called by events, is a tool with one command, `handle`, which writes unless the
configuration says otherwise. A command whose schema allows no further fields is called without the call id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial

from pydantic import ValidationError

from ductile_gateway.ductile.jobs import Document, objects
from ductile_gateway.ductile.settings import DuctileSettings, full_name
from ductile_gateway.plugins.manifest import PluginCommand, PluginDescription
from ductile_gateway.tools.catalog import HOUSEKEEPING, ToolChoice
from schemas import subjects
from schemas.fields import validation_flaws
from schemas.values import dataclass

PIPELINE_COMMAND = "handle"


@dataclass(frozen=True, slots=True)
class DuctileTools:
    """`manifests` and `pipelines` by route. `closed`: routes and commands whose arguments allow no further fields."""

    manifests: Mapping[str, PluginDescription] = field(default_factory=dict)
    pipelines: frozenset[str] = frozenset()
    closed: frozenset[tuple[str, str]] = frozenset()
    problems: tuple[str, ...] = ()


def wanted(choices: Mapping[str, ToolChoice] | None) -> frozenset[str]:
    """Plugins and pipelines of the chosen tools, without our own routes."""
    names = {choice.plugin or name for name, choice in (choices or {}).items()}
    return frozenset(name for name in names - subjects.OUR_OWN_ROUTES if subjects.NAME.fullmatch(name))


def pipeline_names(skills: Document) -> frozenset[str]:
    found = (entry for entry in objects(skills.get("skills")) if entry.get("kind") == "pipeline")
    return frozenset(str(entry.get("pipeline")) for entry in found)


def read_tools(
    names: Iterable[str],
    plugins: Mapping[str, Document],
    pipelines: frozenset[str],
    settings: DuctileSettings,
) -> DuctileTools:
    """`plugins`: answers to GET /plugin/{name}. A route called by events precedes a plugin of its name, and a plugin
    precedes a pipeline."""
    chosen, relayed = frozenset(names), settings.relayed()
    problems: list[str] = [] if chosen else [_NOTHING]
    flows = (chosen & pipelines) - plugins.keys() - relayed
    manifests = dict[str, PluginDescription]()
    for name in sorted(chosen & (plugins.keys() | flows | relayed)):
        document = plugins.get(name, {})
        document = _with_handle(name, document, settings) if name in flows | relayed else document
        if manifest := _manifest(name, document, settings, problems):
            manifests[name] = manifest
    closed = (
        (name, command.name)
        for name in manifests.keys() - flows - relayed
        for command in manifests[name].commands
        if command.input_schema.get("additionalProperties") is False
    )
    route, place = partial(full_name, of=settings.name), f"Ductile {settings.name}: " if settings.name else ""
    return DuctileTools(
        {route(name): manifest for name, manifest in manifests.items()},
        frozenset(map(route, flows)),
        frozenset((route(name), command) for name, command in closed),
        tuple(f"{place}{problem}" for problem in (*problems, *_unused(settings, manifests))),
    )


_NOTHING = (
    "a Ductile offers no tool by itself, because its tokens open all plugins it has: name those that agents may use "
    "under gateway.tools"
)


def _with_handle(name: str, document: Document, settings: DuctileSettings) -> Document:
    handle = next((one for one in objects(document.get("commands")) if one.get("name") == PIPELINE_COMMAND), {})
    tier = "read" if name in settings.reading_pipelines else "write"
    command = {"description": f"Run {name}.", **handle, "name": PIPELINE_COMMAND, "type": tier}
    return {"description": f"{name} of Ductile.", **document, "commands": [command]}


def _manifest(
    name: str, document: Document, settings: DuctileSettings, problems: list[str]
) -> PluginDescription | None:
    commands, schemas, outputs = [], [], []
    for entry in objects(document.get("commands")):
        schema = entry.get("output_schema")
        schemas.append(schema if isinstance(schema, dict) else {})
        if str(entry.get("name")) not in HOUSEKEEPING:
            outputs.append(schemas[-1].get("x-output"))
        idempotent = f"{name}/{entry.get('name')}" in settings.idempotent
        fields = {key: entry.get(key) for key in ("name", "type", "description", "input_schema")}
        fields |= {"effect": schemas[-1].get("x-effect"), "idempotent": idempotent}
        try:
            commands.append(PluginCommand.model_validate(fields))
        except ValidationError as error:
            problems.append(
                f"plugin {name}: its command {str(entry.get('name'))[:64]} is left out: {validation_flaws(error)}"
            )
    is_trusted = bool(outputs) and all(output == "trusted" for output in outputs)
    try:
        return PluginDescription.model_validate(
            {
                "name": full_name(name, of=settings.name),
                "description": document.get("description"),
                "output": "trusted" if is_trusted else "untrusted" if "untrusted" in outputs else None,
                "continues": all(schema.get("x-continues") is not False for schema in schemas),
                "commands": commands,
            }
        )
    except ValidationError as error:
        problems.append(f"plugin {name}: what Ductile tells of it cannot be used: {validation_flaws(error)}")
        return None


def _unused(settings: DuctileSettings, manifests: Mapping[str, PluginDescription]) -> Iterable[str]:
    offered = {f"{name}/{command.name}" for name, manifest in manifests.items() for command in manifest.commands}
    for name in sorted(settings.idempotent - offered):
        yield f"{settings.place}.idempotent names {name}, which is not a command of a tool on offer"
    for name in sorted(settings.relayed() - manifests.keys()):
        yield f"{settings.place}.relay.routes names {name}, which no tool of gateway.tools is called by"
