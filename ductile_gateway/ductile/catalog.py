"""The plugins and pipelines of a Ductile as manifests, for the catalog of tools. Pure.

Only what a configured tool names is taken: a Ductile lists disabled plugins too. It does not say whether a command is
idempotent, so the configuration does. A pipeline, or a route that is called by events, is a tool of one command,
`handle`, that writes unless the configuration says it reads. A command whose schema takes no further fields is called
without the call id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial

from pydantic import JsonValue, ValidationError

from ductile_gateway.ductile.settings import DuctileSettings, full_name
from ductile_gateway.plugins.manifest import Command, Manifest
from ductile_gateway.tools.catalog import ToolChoice
from schemas import subjects
from schemas.catalog import Catalog
from schemas.fields import flaws_of
from schemas.values import dataclass

PIPELINE_COMMAND = "handle"

Document = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class DuctileTools:
    """manifests: by name. closed: routes and commands whose arguments take no further field. problems: what is left
    out, and why. warnings: what is wrong with Ductile or our token, and leaves nothing out."""

    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    pipelines: frozenset[str] = frozenset()
    closed: frozenset[tuple[str, str]] = frozenset()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, ductile: str) -> "DuctileTools":
        if not ductile:
            return self
        called = partial(full_name, of=ductile)
        manifests = ((called(name), manifest) for name, manifest in self.manifests.items())
        return DuctileTools(
            {name: manifest.model_copy(update={"name": name}) for name, manifest in manifests},
            frozenset(map(called, self.pipelines)),
            frozenset((called(route), command) for route, command in self.closed),
            tuple(f"Ductile {ductile}: {problem}" for problem in self.problems),
            self.warnings,
        )


def wanted(choices: Mapping[str, ToolChoice] | None) -> frozenset[str]:
    """The plugins and pipelines to ask Ductile for: those of the tools that are chosen, never our own routes."""
    names = {choice.plugin or name for name, choice in (choices or {}).items()}
    return frozenset(name for name in names - subjects.OUR_OWN_ROUTES if subjects.NAME.fullmatch(name))


def pipeline_names(skills: Document) -> frozenset[str]:
    listed = skills.get("skills")
    entries = listed if isinstance(listed, list) else []
    found = (entry for entry in entries if isinstance(entry, dict) and entry.get("kind") == "pipeline")
    return frozenset(str(entry.get("pipeline")) for entry in found)


def read_tools(
    names: Iterable[str],
    plugins: Mapping[str, Document],
    pipelines: frozenset[str],
    settings: DuctileSettings,
) -> DuctileTools:
    """The tools among `names`. `plugins`: the answers to GET /plugin/{name}. A route called by events comes before a
    plugin of its name, and that before a pipeline."""
    wanted_names, relayed = frozenset(names), settings.relayed()
    problems: list[str] = [] if wanted_names else [_NOTHING]
    found = {
        name: manifest
        for name in sorted(wanted_names)
        if (manifest := _plugin(name, plugins.get(name), settings, problems))
    }
    listening = {name: _listening(name, found.get(name), settings) for name in wanted_names & relayed}
    called = {name: manifest for name, manifest in found.items() if name not in relayed}
    flows = (wanted_names & pipelines) - plugins.keys() - relayed
    manifests = called | {name: _pipeline(name, settings) for name in flows} | listening
    taken = (pipelines & plugins.keys()) - relayed
    problems += [f"pipeline {name}: a plugin has the same name and is taken" for name in sorted(taken)]
    told = (*_undeclared(settings, manifests), *_unused(settings, relayed - wanted_names))
    return DuctileTools(manifests, flows, _closed(called), (*problems, *told))


def without_call_id(catalog: Catalog, tools: DuctileTools) -> Iterable[str]:
    for offer in catalog.tools:
        for command in offer.commands:
            may_be_in_doubt = command.tier == "write" and not command.idempotent
            if may_be_in_doubt and (offer.route, command.name) in tools.closed:
                yield (
                    f"tool {offer.name}: {command.name} writes and takes no further arguments, so it is called without "
                    "a call id, and a call whose answer is lost is in doubt at once"
                )


_TOLD = ("name", "type", "description", "input_schema")
_NOTHING = (
    "a Ductile offers no tool by itself, because its tokens open all plugins it has: name those that agents may use "
    "under gateway.tools"
)


def _plugin(name: str, document: Document | None, settings: DuctileSettings, problems: list[str]) -> Manifest | None:
    if document is None:
        return None
    listed = document.get("commands")
    entries = listed if isinstance(listed, list) else []
    commands = [command for entry in entries if (command := _command(name, entry, settings, problems))]
    try:
        return _manifest(name, document, commands).model_copy(update=_said_in_schemas(entries))
    except ValidationError as error:
        problems.append(f"plugin {name}: what Ductile tells of it cannot be used: {flaws_of(error)}")
        return None


def _command(plugin: str, entry: JsonValue, settings: DuctileSettings, problems: list[str]) -> Command | None:
    if not isinstance(entry, dict):
        return None
    try:
        told = {key: entry.get(key) for key in _TOLD} | {"effect": _annotated(entry, "effect")}
        command = Command.model_validate(told)
    except ValidationError as error:
        problems.append(f"plugin {plugin}: its command {str(entry.get('name'))[:64]} is left out: {flaws_of(error)}")
        return None
    return command.model_copy(update={"idempotent": f"{plugin}/{command.name}" in settings.idempotent})


def _said_in_schemas(entries: Iterable[JsonValue]) -> dict[str, object]:
    said = [entry for entry in entries if isinstance(entry, dict)]
    outputs = {_annotated(entry, "output") for entry in said}
    output = next((one for one in ("untrusted", "trusted") if one in outputs), None)
    ends = any(_annotated(entry, "continues") is False for entry in said)
    return ({"output": output} if output else {}) | ({"continues": False} if ends else {})


def _annotated(entry: Document, name: str) -> JsonValue:
    schema = entry.get("output_schema")
    return schema.get(f"x-{name}") if isinstance(schema, dict) else None


def _pipeline(name: str, settings: DuctileSettings) -> Manifest:
    command = Command(name=PIPELINE_COMMAND, type="write", description=f"Run pipeline {name}.")
    return _manifest(name, {"description": f"Pipeline {name} of Ductile."}, [_declared(name, command, settings)])


def _listening(name: str, plugin: Manifest | None, settings: DuctileSettings) -> Manifest:
    described = plugin and plugin.command(PIPELINE_COMMAND)
    command = described or Command(name=PIPELINE_COMMAND, type="write", description=f"Run {name}.")
    document: Document = {"description": plugin.description if plugin else f"{name} of Ductile."}
    manifest = _manifest(name, document, [_declared(name, command, settings)])
    described_by = {"output": plugin.output, "continues": plugin.continues} if plugin else {}
    return manifest.model_copy(update=described_by)


def _declared(name: str, command: Command, settings: DuctileSettings) -> Command:
    tier = "read" if name in settings.reading_pipelines else "write"
    return command.model_copy(update={"type": tier, "idempotent": f"{name}/{command.name}" in settings.idempotent})


def _closed(manifests: Mapping[str, Manifest]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (name, command.name)
        for name, manifest in manifests.items()
        for command in manifest.commands
        if command.input_schema.get("additionalProperties") is False
    )


def _manifest(name: str, document: Document, commands: list[Command]) -> Manifest:
    return Manifest.model_validate(
        {
            "manifest_spec": "ductile.plugin",
            "manifest_version": 1,
            "protocol": 2,
            "name": name,
            "version": document.get("version") or "unknown",
            "entrypoint": "ductile",  # what starts the plugin there is not told, and nothing here starts it
            "description": document.get("description"),
            "commands": commands,
        }
    )


def _undeclared(settings: DuctileSettings, manifests: Mapping[str, Manifest]) -> Iterable[str]:
    there = {f"{name}/{command.name}" for name, manifest in manifests.items() for command in manifest.commands}
    for name in sorted(settings.idempotent - there):
        yield f"{settings.place}.idempotent names {name}, which is no command of a tool on offer"


def _unused(settings: DuctileSettings, routes: frozenset[str]) -> Iterable[str]:
    for name in sorted(routes):
        yield f"{settings.place}.relay.routes names {name}, which no tool of gateway.tools is called by"
