"""Plugins and pipelines, how Ductile describes them, and what each scope of a token opens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_INVOKE = {"detail", "invoke"}
_JOBS = {"status", "result", "tree", "logs"}
_OF_BOTH: Mapping[str, set[str]] = {
    "*": {"catalog", *_INVOKE, "write", *_JOBS, "follow", "view"},
    "plugin:rw": {"catalog", *_INVOKE, "write"},
    **dict.fromkeys(("jobs:ro", "jobs:rw"), _JOBS),
    **{scope: {"follow"} for scope in ("events:ro", "events:rw")},
    **{scope: {"view"} for scope in ("system:ro", "system:rw")},
}
GRANTS: Mapping[str, Mapping[str, set[str]]] = {
    "M": {**_OF_BOTH, "plugin:ro": _INVOKE},
    "N": {
        **_OF_BOTH,
        "plugin:ro": {"catalog", "detail"},
        "plugin:catalog:ro": {"catalog", "detail"},
        "plugin:invoke:ro": {"invoke"},
        **{f"jobs:{what}:ro": {what} for what in _JOBS},
        "events:meta:ro": {"follow"},
    },
}
"""Scopes are exact strings: unknown ones give nothing. M lets every valid token list plugins and skills; N has
scopes of its own for the list, for calls and for results."""


def granted(version: str, scopes: Iterable[str]) -> set[str]:
    """What these scopes allow together."""
    always = {"catalog"} if version == "M" else set()
    return always.union(*(GRANTS[version].get(scope, set()) for scope in scopes))


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
        if isinstance(manifest, Path):
            manifest = yaml.safe_load((manifest / "manifest.yaml").read_text(encoding="utf-8"))
        assert isinstance(manifest, Mapping)
        self.plugins[manifest["name"]] = manifest

    def command(self, plugin: str, command: str) -> Mapping[str, Any] | None:
        """A command as its manifest has it."""
        return next((one for one in self.plugins[plugin]["commands"] if one["name"] == command), None)

    def listening(self, event_type: str) -> list[Pipeline]:
        """The pipelines that an event starts: exact match, no wildcards."""
        return [one for one in self.pipelines.values() if one.on == event_type]

    def skills(self) -> list[dict[str, Any]]:
        """For GET /skills: every command and pipeline, without schemas."""
        commands = [
            _skill("plugin", f"{plugin}.{command['name']}", f"{plugin}/{command['name']}")
            | {"tier": "READ" if command["type"] == "read" else "WRITE", "plugin": plugin, "command": command["name"]}
            for plugin, manifest in sorted(self.plugins.items())
            for command in manifest["commands"]
        ]
        return commands + [
            _skill("pipeline", one.name, one.name) | {"pipeline": one.name, "trigger": one.on}
            for one in self.pipelines.values()
        ]

    def detail(self, plugin: str) -> dict[str, Any]:
        """For GET /plugin/{name}, with schemas in full. Whether a command may be repeated is not told."""
        manifest = self.plugins[plugin]
        told = _told(manifest, "name", "version", "description", "protocol")
        return told | {"commands": [_command(one) for one in manifest["commands"]]}


def _told(manifest: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: manifest[name] for name in names if name in manifest}


def _skill(kind: str, name: str, place: str) -> dict[str, Any]:
    return {"name": f"{kind}.{name}", "kind": kind, "endpoint": f"/{kind}/{place}"}


def _command(command: Mapping[str, Any]) -> dict[str, Any]:
    schemas = {name: _full(command[name]) for name in ("input_schema", "output_schema") if name in command}
    return _told(command, "name", "type", "description") | schemas


def _full(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The compact form (`field: type`) becomes a schema of an object that requires nothing."""
    if all(isinstance(value, str) for value in schema.values()) and "type" not in schema:
        return {"type": "object", "properties": {name: {"type": kind} for name, kind in schema.items()}}
    return dict(schema)
