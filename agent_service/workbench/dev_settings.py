"""Settings of `agentic dev`: the user's file, except for paths and listening addresses."""

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from agent_service import settings
from agent_service.cli.doctor.report import gateway_section
from groundwork.service import store_folder
from groundwork.service.config_file import file_section
from groundwork.service.errors import Misconfigured
from groundwork.service.program import shipped
from schemas.values import dataclass

LOGIN_FILE = "nats-url"
"""File beside the settings with the URL of the bus, login included."""
OVERRIDDEN = frozenset({"nats", "store", "cache", "keys_file", "http", "log", "workspaces"})
PLUGINS = shipped("deploy", "ductile", "plugins")
SHAPES = {"folders": list, "closed": list, "config": dict}
"""Settings of the gateway's plugins that are added to."""

Section = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """`file` is the user's settings file; `agent` and `gateway` override everything else. `story` plays the shipped
    story, whatever the goal."""

    folder: Path
    nats_port: int = 0
    http_port: int = 0
    script: Path | None = None
    plugins: tuple[Path, ...] = (PLUGINS,)
    plugin_config: Section = field(default_factory=dict)
    sync_interval: str = "always"
    agent: Section = field(default_factory=dict)
    gateway: Section = field(default_factory=dict)
    file: Path | None = None
    story: bool = False


def section(file: Path | None, *names: str) -> dict[str, Any]:
    """Reads a section of `file` without the settings that `agentic dev` sets itself. Raises Misconfigured."""
    return {name: value for name, value in file_section(file, *names).items() if name not in OVERRIDDEN}


def names_a_model(file: Path | None) -> bool:
    return not section(file, "agent").keys().isdisjoint(("model", "llm_provider"))


async def write_settings(options: DevOptions, nats_url: str, http_port: int, gateway_port: int) -> Path:
    """Raises Misconfigured if no service could start with the result."""
    path, whole = options.folder / "agentic.yaml", settings_of(options, nats_url, http_port, gateway_port)
    # As it is: YAML takes a character beyond U+FFFF for one that JSON escapes as two.
    store_folder.write(path, json.dumps(whole, indent=2, ensure_ascii=False))
    if options.file:
        await _check(path, options.file)
    return path


def settings_of(options: DevOptions, nats_url: str, http_port: int, gateway_port: int) -> Section:
    folder, file = options.folder, options.file
    agent = {"store": folder / "agent", "workspaces": folder / "workspaces", "http": _on(http_port), **options.agent}
    script = {"model": {"provider": "scripted", "script": options.script}} if options.script else {}
    gateway = {"store": folder / "gateway", "http": _on(gateway_port)}
    plugins = {"plugins": _plugins(options, section(file, "gateway", "plugins"))}
    return {
        "nats": _plain({"urls": [nats_url]}),
        "agent": {"model": {"provider": "scripted"}} | section(file, "agent") | _plain(script | agent),
        "gateway": section(file, "gateway") | _plain(gateway) | plugins | _plain(options.gateway),
    }


async def _check(made: Path, file: Path) -> None:
    try:
        settings.load(made)
    except Misconfigured as error:
        raise Misconfigured(f"{file} cannot be used: {error}") from error
    async for finding in gateway_section(made):
        if finding.mark == "wrong":
            raise Misconfigured(f"{file} cannot be used: {finding.text}")


def _on(port: int) -> Section:
    return {"host": "127.0.0.1", "port": port}


def _plugins(options: DevOptions, given: Section) -> Section:
    if any(not isinstance(given.get(name) or kind(), kind) for name, kind in SHAPES.items()):
        return given  # `_check` says what is wrong
    folders, closed = given.get("folders") or [], given.get("closed") or []
    own = [path for path in options.plugins if str(path) not in folders]
    pages = {"folder": shipped("deploy", "knowledge"), "cache": options.folder / "knowledge"}
    config = _plain({"knowledge": pages} if PLUGINS in options.plugins else {}) | dict(given.get("config") or {})
    return {
        "reload": bool(folders) or options.plugins != (PLUGINS,),
        **given,
        "folders": [*folders, *_plain(own)],
        "config": config | _plain(options.plugin_config),
        "closed": [*closed, *_plain([options.folder / name for name in ("nats", "logs", LOGIN_FILE)])],
    }


def _plain(value: Any) -> Any:
    """Turns paths into text and escapes `${`."""
    return json.loads(json.dumps(value, default=str).replace("${", "$${"))
