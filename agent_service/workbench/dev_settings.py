"""The settings of `agentic dev`: what it says itself, and what it takes of a settings file of yours."""

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from agent_service import settings
from agent_service.cli.doctor.tools import of_the_gateway
from groundwork.service.errors import Misconfigured
from groundwork.service.strict import NotYaml, parse
from schemas.values import dataclass

DEFAULT = Path("agentic.yaml")
PLACES = frozenset({"nats", "store", "cache", "keys_file", "http", "log"})
OURS = {"agent": PLACES | {"workspaces"}, "gateway": PLACES}

Section = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Taken:
    """The sections of a file without what does not count. `left`: what that is, where it was given."""

    file: Path | None = None
    agent: Section = field(default_factory=dict)
    gateway: Section = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def plugins(self) -> Section:
        return _mapping(self.gateway.get("plugins"), "gateway.plugins")

    def folders(self) -> tuple[str, ...]:
        folders = self.plugins().get("folders") or ()
        if not isinstance(folders, list | tuple) or not all(isinstance(folder, str) for folder in folders):
            raise Misconfigured(f"{self.file}: gateway.plugins.folders: has to be a list of paths")
        return tuple(folders)

    def config_of_plugins(self) -> Section:
        return _mapping(self.plugins().get("config"), "gateway.plugins.config")

    def closed(self) -> tuple[Any, ...]:
        closed = self.plugins().get("closed")
        return tuple(closed) if isinstance(closed, list) else ()

    def names_a_model(self) -> bool:
        return not self.agent.keys().isdisjoint(("model", "llm_provider"))


NOTHING_TAKEN = Taken()


def taken_nearby(file: Path | None) -> Taken:
    """From that file, or else from ./agentic.yaml, if there is one. Raises Misconfigured."""
    found = file or (DEFAULT if os.path.lexists(DEFAULT) else None)
    return taken_from(found) if found else NOTHING_TAKEN


def taken_from(file: Path) -> Taken:
    try:
        document = _mapping(parse(file.read_text(encoding="utf-8")), "the whole")
    except (OSError, UnicodeDecodeError, NotYaml) as error:
        raise Misconfigured(f"{file}: {error}") from error
    sections = {name: _mapping(document.get(name), name) for name in OURS}
    kept = {name: {key: section[key] for key in section if key not in OURS[name]} for name, section in sections.items()}
    left = tuple(f"{name}.{key}" for name, section in sections.items() for key in section if key in OURS[name])
    return Taken(file, kept["agent"], kept["gateway"], ("nats", *left) if "nats" in document else left)


async def check(config: Path, taken: Taken) -> None:
    """Raises Misconfigured where a service could not start with what was made of the file."""
    if taken.file is None:
        return
    try:
        settings.load(config)
    except Misconfigured as error:
        raise Misconfigured(f"{taken.file} cannot be used: {error}") from error
    async for finding in of_the_gateway(config):
        if finding.mark == "wrong":
            raise Misconfigured(f"{taken.file} cannot be used: {finding.text}")


def as_data(value: Any) -> Any:
    match value:
        case str():
            return value.replace("${", "$${")
        case Path():
            return as_data(str(value))
        case Mapping():
            return {as_data(key): as_data(inner) for key, inner in value.items()}
        case list() | tuple():
            return [as_data(inner) for inner in value]
    return value


def _mapping(value: Any, place: str) -> Section:
    if not isinstance(value, dict | None):
        raise Misconfigured(f"{place}: expected settings as `key: value` lines")
    return value or {}
