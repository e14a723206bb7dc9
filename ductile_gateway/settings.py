"""Settings of the gateway: the section `gateway:` of agentic.yaml, overridden by the environment (`GATEWAY_…`).

docs/CONFIGURATION.md explains each of them, with its unit.
"""

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from ductile_gateway.ductile.settings import DuctileName, DuctileSettings, own_name, owner
from ductile_gateway.tools.catalog import ToolChoice
from ductile_gateway.webhooks.settings import IngressSettings, OutboundSettings
from groundwork.nats.settings import ServiceSettings
from groundwork.service import config_file
from groundwork.service.config_file import OF_PLUGINS, Port, Section, ServerSettings, interpolated, leaves
from groundwork.service.secret import SHORTEST
from groundwork.service.strict import NotYaml, parse
from schemas.fields import ToolName

SECTION = "gateway"


def texts_in(config: object) -> Iterator[str]:
    return (text for _, text in leaves(config) if isinstance(text, str))


_KEY = re.compile(
    r"token(?![_-](url|file|path)$)|secret|passw|credential|authorization|(api|private|access)[_-]?key", re.IGNORECASE
)


def keys_in(config: object) -> Iterator[str]:
    """Texts under names such as `token`, which no result may bring."""
    for place, text in leaves(config):
        if isinstance(text, str) and len(text) >= SHORTEST and any(map(_KEY.search, place)):
            yield text


class PluginLimits(Section):
    cpu_s: Annotated[float, Field(gt=0)] = 300.0
    memory_mb: Annotated[int, Field(ge=16)] = 1024
    file_mb: Annotated[int, Field(ge=1)] = 256
    processes: Annotated[int, Field(ge=1)] = 128
    open_files: Annotated[int, Field(ge=16)] = 256
    output_mb: Annotated[float, Field(gt=0, le=1024)] = 10.0


class PluginSettings(Section):
    folders: tuple[Path, ...] = ()
    config: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    reload: bool = False
    environment: tuple[str, ...] = ()
    limits: PluginLimits = PluginLimits()
    run_as: str | None = None
    boundary: Literal["auto", "landlock", "view", "none"] = "auto"
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    closed: tuple[Path, ...] = ()
    apart: tuple[Path, ...] = ()

    def secrets(self) -> tuple[str, ...]:
        """Any text that a plugin is configured with may be a secret."""
        return tuple(texts_in(self.config))


class HttpSettings(ServerSettings):
    port: Port = 8711


class GatewaySettings(ServiceSettings):
    name: ToolName = "ductile-gateway"
    store: Path = Path(".agentic/gateway")
    cache: Path = Path(".agentic/gateway-copy")
    runner: Literal["plugins", "ductile", "in_process"] = "plugins"
    plugins: PluginSettings = PluginSettings.model_construct()
    ductile: DuctileSettings | None = None
    ductiles: dict[DuctileName, DuctileSettings] = Field(default_factory=dict)
    ingress: IngressSettings = IngressSettings.model_construct()
    outbound: OutboundSettings = OutboundSettings.model_construct()
    http: HttpSettings = HttpSettings.model_construct()
    require_signed_writes: bool = False
    tools: dict[ToolName, ToolChoice | None] | tuple[ToolName, ...] | None = None
    slots: Annotated[int, Field(ge=1)] = 32
    concurrency: Annotated[int, Field(ge=1)] = 4
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 60.0
    grace_s: Annotated[float, Field(ge=0)] = 5.0
    ledger_days: Annotated[float, Field(ge=1)] = 30.0
    ledger_mb: Annotated[int, Field(ge=1)] | None = None
    run_mb: Annotated[int, Field(ge=1)] = 256

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, settings in self.ductiles.items():
            settings.name_it(name)
        if self.runner == "ductile" and not self.every_ductile():
            raise ValueError("runner `ductile` needs the section `ductile`, with its url and a token")
        if self.plugins.reload and self.shared:
            raise ValueError("plugins.reload is for one gateway: several with `store: jetstream` are started anew")
        all_named = self.runner == "ductile" and self.ductile is None
        for tool in self.choices() or () if all_named else ():
            if not owner(tool, self.ductiles):
                names = ", ".join(f"{name}_" for name in sorted(self.ductiles))
                raise ValueError(f"tool {tool} has to begin with the name of its Ductile: {names}")
        return self

    def every_ductile(self) -> Mapping[str, DuctileSettings]:
        """Ductiles that carry out calls, by name; empty for the unnamed one."""
        alone = {"": self.ductile} if self.ductile else {}
        return alone | self.ductiles

    def choices_in(self, ductile: str) -> Mapping[str, ToolChoice]:
        return {
            tool: choice.model_copy(update={"plugin": choice.plugin or own_name(tool, of=ductile)})
            for tool, choice in (self.choices() or {}).items()
            if owner(tool, self.ductiles) == ductile
        }

    def choices(self) -> Mapping[str, ToolChoice] | None:
        if isinstance(self.tools, dict):
            return {name: choice or ToolChoice() for name, choice in self.tools.items()}
        return None if self.tools is None else {name: ToolChoice() for name in self.tools}


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> GatewaySettings:
    settings = config_file.load(GatewaySettings, SECTION, path, environ, other_sections=("agent",))
    own = (settings.private_folder(), settings.keys_path())
    closed = (*settings.plugins.closed, *own, *((path,) if path else ()), *beside(path, environ))
    update = {"closed": closed, "apart": (*settings.plugins.apart, *apart(path))}
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update=update)})


PRIVATE = ("*.yaml", "*.yml", "*.env", ".env*", "*.keys*", "*.creds", "*.nk", "*.conf")
PLACES = {
    *(("agent", name) for name in ("store", "cache", "workspaces")),
    *(("gateway", name) for name in ("store", "cache")),
}
FILES = ("_FILE", "TLS_KEY")
"""Endings of settings and variables that name a file with a secret."""
VARIABLES = ("AGENT_", "GATEWAY_")
DEFAULTS = Path(".agentic")
OF_NATS = re.compile(r"^\s*[\"']?store_?dir[\"']?\s*[:=]?\s*[\"']?([^\"'\s#]+)", re.MULTILINE | re.IGNORECASE)
MOST_BYTES = 1024 * 1024


def apart(settings: Path | None) -> Iterator[Path]:
    yield DEFAULTS
    if settings and (folder := settings.resolve().parent) != Path(folder.anchor):
        yield folder


def beside(settings: Path | None, environ: Mapping[str, str]) -> Iterator[Path]:
    """Paths that only the services may reach: named in the settings file, in files beside it and in the environment."""
    yield from (Path(environ[name]) for name in environ if name.startswith(VARIABLES) and name.endswith(FILES))
    for path in chain.from_iterable(map(settings.parent.glob, PRIVATE)) if settings else ():
        yield path
        if path.suffix in (".yaml", ".yml"):
            yield from (Path(place) for place in _named_in(path, environ) if "\0" not in place)
        elif path.suffix == ".conf":
            yield from (path.parent / found for found in OF_NATS.findall(_text(path)))


def _named_in(path: Path, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        document = interpolated(parse(_text(path)), environ)
    except NotYaml:
        return
    for place, value in leaves(document):
        is_file = place[-1].upper().endswith(FILES) and OF_PLUGINS not in pairwise(place)
        if isinstance(value, str) and (is_file or place in PLACES):
            yield value
            if place[-1] == "store":
                yield f"{value.rstrip('/')}.keys"  # which may be made later


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size < MOST_BYTES else ""
    except (OSError, UnicodeError):
        return ""
