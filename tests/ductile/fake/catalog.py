"""Plugins and pipelines, and how Ductile describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One step, the plugin's `handle`."""

    name: str
    on: str
    plugin: str


@dataclass(slots=True)
class Catalog:
    """What is installed. Nothing here can be disabled: a disabled plugin is as callable as any other."""

    plugins: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    pipelines: dict[str, Pipeline] = field(default_factory=dict)

    def add(self, manifest: Mapping[str, Any] | Path) -> None:
        """A manifest, or the folder with its manifest.yaml."""
        known: Mapping[str, Any] = _loaded(manifest) if isinstance(manifest, Path) else manifest
        self.plugins[known["name"]] = known

    def command(self, plugin: str, command: str) -> Mapping[str, Any] | None:
        """A command as its manifest has it."""
        return next((one for one in self.plugins[plugin]["commands"] if one["name"] == command), None)

    def listening(self, event_type: str) -> list[Pipeline]:
        """The pipelines that an event starts: exact match, no wildcards."""
        return [one for one in self.pipelines.values() if one.on == event_type]

    def skills(self) -> list[dict[str, Any]]:
        """For GET /skills: every command and pipeline, without schemas."""
        plugins = [
            _skill(name, command)
            for name, manifest in sorted(self.plugins.items())
            for command in sorted(manifest["commands"], key=lambda one: str(one["name"]))
        ]
        return plugins + [_pipeline_skill(one) for one in self.pipelines.values()]

    def detail(self, plugin: str) -> dict[str, Any]:
        """For GET /plugin/{name}, with schemas in full. Whether a command may be repeated is not told."""
        manifest = self.plugins[plugin]
        told = _told(manifest, "name", "version", "description", "protocol")
        return told | {"commands": [_command(one) for one in manifest["commands"]]}


def _loaded(folder: Path) -> Any:
    return yaml.safe_load((folder / "manifest.yaml").read_text(encoding="utf-8"))


def _told(manifest: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: manifest[name] for name in names if name in manifest}


def _command(command: Mapping[str, Any]) -> dict[str, Any]:
    schemas = {name: _full(command[name]) for name in ("input_schema", "output_schema") if name in command}
    return _told(command, "name", "type", "description") | schemas


def _full(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The compact form (`field: type`) becomes a schema of an object that requires nothing."""
    if all(isinstance(value, str) for value in schema.values()) and "type" not in schema:
        return {"type": "object", "properties": {name: {"type": kind} for name, kind in schema.items()}}
    return dict(schema)


def _skill(plugin: str, command: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"plugin.{plugin}.{command['name']}",
        "kind": "plugin",
        **_told(command, "description"),
        "endpoint": f"/plugin/{plugin}/{command['name']}",
        "tier": "READ" if command["type"] == "read" else "WRITE",
        "plugin": plugin,
        "command": command["name"],
    }


def _pipeline_skill(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "name": f"pipeline.{pipeline.name}",
        "kind": "pipeline",
        "endpoint": f"/pipeline/{pipeline.name}",
        "pipeline": pipeline.name,
        "trigger": pipeline.on,
        "execution_mode": "async",
        "timeout_secs": 30,
    }
