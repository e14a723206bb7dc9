"""Settings of the gateway: the section `gateway:` of agentic.yaml; the environment (`GATEWAY_…`) has the last word."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from ductile_gateway.ductile.settings import DuctileName, DuctileSettings, full_name, own_name, owner
from ductile_gateway.tools.catalog import ToolChoice
from ductile_gateway.webhooks.settings import IngressSettings, OutboundSettings
from groundwork.nats.settings import NatsSettings
from groundwork.service import config_file
from groundwork.service.config_file import OF_PLUGINS, LogSettings, Section, as_given
from groundwork.service.strict import NotYaml, parse
from groundwork.telemetry.settings import TelemetrySettings
from schemas import subjects
from schemas.fields import ToolName

SECTION = "gateway"
DEFAULT_FILE = Path("agentic.yaml")
JETSTREAM = Path("jetstream")
"""As the store: streams of the bus, which several gateways have in common."""
SHARED_KEYS = Path(".agentic/gateway.keys")
ENV_PREFIX = "GATEWAY_"
OTHER_SECTIONS = ("agent",)


class PluginLimits(Section):
    """What one call may use, with all of its processes; besides the time by the clock, which is the tool's."""

    cpu_s: Annotated[float, Field(gt=0)] = 300.0
    """Processor time, in seconds."""
    memory_mb: Annotated[int, Field(ge=16)] = 1024
    """Memory, in MiB."""
    file_mb: Annotated[int, Field(ge=1)] = 256
    """A file, and all that lies in the call's own folder, in MiB."""
    processes: Annotated[int, Field(ge=1)] = 128
    """Processes and threads."""
    open_files: Annotated[int, Field(ge=16)] = 256
    """Open files, of each process."""
    output_mb: Annotated[float, Field(gt=0, le=1024)] = 10.0
    """What it writes to stdout, and to stderr, in MiB."""


class PluginSettings(Section):
    """Plugin folders that the gateway runs itself (Ductile plugin protocol v2), each call in a box of its own."""

    folders: tuple[Path, ...] = ()
    """Each holds one folder per plugin."""
    config: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """The configuration that a plugin is given with each call, by the plugin's name."""
    reload: bool = False
    """Read the folders again while the gateway runs: for authors of tools."""
    environment: tuple[str, ...] = ()
    """Variables that plugins may see, besides PATH, HOME, TMPDIR, TZ and the locale."""
    limits: PluginLimits = PluginLimits()
    run_as: str | None = None
    """The user as whom plugins run, where the gateway is root; without it they run as the gateway's own."""
    boundary: Literal["auto", "landlock", "view", "none"] = "auto"
    """What keeps plugins from the files of others. `landlock`: they reach what is named, and nothing else. `view`, for
    plugins that cannot live with that: mounts that hide stores, settings, keys, devices and other calls, and let them
    change nothing but what is named. `none`. `auto`: landlock, or where the kernel has none that keeps files whole, a
    view. A gateway that is root needs landlock or `run_as`."""
    read: tuple[Path, ...] = ()
    """Places that plugins may read and run things from, besides the system's programs, their own folder and what their
    configuration names."""
    write: tuple[Path, ...] = ()
    """Places that plugins may change, besides the call's own folder and what their configuration names."""
    closed: tuple[Path, ...] = ()
    """Places that plugins never reach, also in one that they may, beside the stores and keys of the services."""
    apart: tuple[Path, ...] = ()
    """Folders where plugins reach only what their settings name, besides the folder of the settings."""


class HttpSettings(Section):
    """Where probes are answered: `/healthz`, `/readyz` and `/metrics`, without a token."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8711
    """The port to listen on; 0 takes a free one. If it is not set and taken, probes are not answered."""
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Host headers by which `/metrics` is answered; the others are answered by any."""

    def is_chosen(self) -> bool:
        return not self.model_fields_set.isdisjoint(("host", "port"))


class GatewaySettings(Section):
    """Everything that the gateway can be told."""

    name: ToolName = "ductile-gateway"
    """By this name it offers its tools, beside other executors, and takes requests that name it."""
    nats: NatsSettings = NatsSettings.model_construct()
    store: Path = Path(".agentic/gateway")
    """Folder of the ledger and of calls under way, on a local disk: one gateway at a time. Or the word `jetstream`: the
    ledger is on the bus, and any number of gateways share it."""
    cache: Path = Path(".agentic/gateway-copy")
    """With `store: jetstream`, where each gateway of this machine has a folder of its own: for its copy of the ledger,
    which can be made again, and for calls under way."""
    keys_file: Path | None = None
    """The keys by which the gateway proves its backups; made where there is none. By default beside the folder of the
    store, never in it: `<store>.keys`. Gateways that share a ledger have the same keys, by default
    `.agentic/gateway.keys`."""
    lease_s: Annotated[float, Field(ge=1)] = 10.0
    """How long the bus belongs to a gateway that does not renew its lease, in seconds: a fifth of it is between two
    renewals."""
    runner: Literal["plugins", "ductile", "in_process"] = "plugins"
    """Who carries out the calls: our own plugin processes, or a Ductile; `in_process` is an echo, for benchmarks."""
    plugins: PluginSettings = PluginSettings.model_construct()
    ductile: DuctileSettings | None = None
    """The Ductile that carries out the calls."""
    ductiles: dict[DuctileName, DuctileSettings] = Field(default_factory=dict)
    """Further Ductiles by name, beside that one or in its place: `gateway.tools` calls plugin `echo` of Ductile `home`
    `home_echo`."""
    ingress: IngressSettings = IngressSettings.model_construct()
    """Events from outside: of a Ductile, and of webhooks."""
    outbound: OutboundSettings = OutboundSettings.model_construct()
    """Who is told of what becomes of runs."""
    http: HttpSettings = HttpSettings.model_construct()
    """Probes of the gateway itself."""
    require_signed_writes: bool = False
    """Carry a write out only if the agent signed the request. Otherwise each login that may publish requests may have
    anything written."""
    tools: dict[ToolName, ToolChoice | None] | tuple[ToolName, ...] | None = None
    """The tools on offer, by name; without it every plugin with all of its commands."""
    slots: Annotated[int, Field(ge=1)] = 32
    """Calls carried out at the same time; more requests wait in hand, where runs take turns."""
    concurrency: Annotated[int, Field(ge=1)] = 4
    """Calls of one tool at the same time, of all gateways together that share a ledger, unless the tool has a number of
    its own."""
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """How long a call may take, in seconds, unless the tool has a number of its own."""
    grace_s: Annotated[float, Field(ge=0)] = 5.0
    """How long calls may still take when the gateway is stopped, in seconds; the next start resumes the others."""
    ledger_days: Annotated[float, Field(ge=1)] = 30.0
    """How long the ledger keeps answers: a request that comes again later than that is run again."""
    ledger_mb: Annotated[int, Field(ge=1)] | None = None
    """How much the ledger may hold, in MiB: beyond that the oldest answers go earlier, but none within a day."""
    run_mb: Annotated[int, Field(ge=1)] = 256
    """What the artifacts of one run may take together, in MiB: what a tool brings beyond that is for a person."""
    telemetry: TelemetrySettings = TelemetrySettings.model_construct()
    log: LogSettings = LogSettings.model_construct()

    @model_validator(mode="after")
    def _who_runs(self) -> Self:
        if self.runner == "ductile" and not self.every_ductile():
            raise ValueError("runner `ductile` needs the section `ductile`, with its url and a token")
        if self.plugins.reload and self.shared:
            raise ValueError("plugins.reload is for one gateway: several with `store: jetstream` are started anew")
        return self

    @model_validator(mode="after")
    def _whose_tools(self) -> Self:
        if self.runner != "ductile" or not self.ductiles:
            return self
        for tool, choice in (self.choices() or {}).items():
            if (name := owner(tool, self.ductiles)) == "" and self.ductile is None:
                names = ", ".join(f"{name}_" for name in sorted(self.ductiles))
                raise ValueError(f"tool {tool} has to begin with the name of its Ductile: {names}")
            if choice.plugin and not subjects.NAME.fullmatch(full_name(choice.plugin, of=name)):
                raise ValueError(f"tool {tool}: the names of its Ductile and of its plugin are too long together")
        return self

    @property
    def shared(self) -> bool:
        return self.store == JETSTREAM

    def keys_path(self) -> Path:
        return self.keys_file or (SHARED_KEYS if self.shared else self.store.with_name(f"{self.store.name}.keys"))

    def private_folder(self) -> Path:
        return self.cache if self.shared else self.store

    def every_ductile(self) -> Mapping[str, DuctileSettings]:
        """Those that carry out calls, by name; the one that needs none has the empty one."""
        alone = {"": self.ductile} if self.ductile else {}
        return alone | {name: settings.named(name) for name, settings in self.ductiles.items()}

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

    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show: any text that a plugin is configured with may be one."""
        configured = (value for config in self.plugins.config.values() for value in config.values())
        ductile = (secret for each in self.every_ductile().values() for secret in each.secrets())
        ours = (*self.nats.secrets(), *ductile, *self.ingress.secrets(), *self.outbound.secrets())
        return (*ours, *self.telemetry.secrets(), *(value for value in configured if isinstance(value, str)))


def settings_file(named: Path | None) -> Path | None:
    return named or (DEFAULT_FILE if os.path.lexists(DEFAULT_FILE) else None)


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> GatewaySettings:
    settings = config_file.load(
        GatewaySettings,
        path=path,
        section=SECTION,
        env_prefix=ENV_PREFIX,
        environ=environ,
        other_sections=OTHER_SECTIONS,
    )
    ours = (settings.private_folder(), settings.keys_path())
    closed = (*settings.plugins.closed, *ours, *((path,) if path else ()), *beside(path, environ))
    update = {"closed": closed, "apart": (*settings.plugins.apart, *apart(path))}
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update=update)})


PRIVATE = ("*.yaml", "*.yml", "*.env", ".env*", "*.keys*", "*.creds", "*.nk", "*.conf")
PLACES = {"agent": ("store", "cache", "workspaces"), "gateway": ("store", "cache")}
FILES = ("_FILE", "TLS_KEY")
"""How settings end that name a file with a secret in it, as variables have them."""
VARIABLES = ("AGENT_", "GATEWAY_")
OF_A_STORE = (".keys",)
"""Beside it, also where they are made only after this is asked."""
DEFAULTS = Path(".agentic")
OF_NATS = re.compile(r"^\s*[\"']?store_?dir[\"']?\s*[:=]?\s*[\"']?([^\"'\s#]+)", re.MULTILINE | re.IGNORECASE)
MOST_BYTES = 1024 * 1024


def apart(settings: Path | None) -> Iterator[Path]:
    yield DEFAULTS
    if settings and (folder := settings.resolve().parent) != Path(folder.anchor):
        yield folder


def beside(settings: Path | None, environ: Mapping[str, str]) -> Iterator[Path]:
    """Places that only the services may reach, by the settings file, others in its folder and the environment."""
    yield from (Path(environ[name]) for name in environ if name.startswith(VARIABLES) and name.endswith(FILES))
    for pattern in PRIVATE if settings else ():
        for path in settings.parent.glob(pattern) if settings else ():
            yield path
            if path.suffix in (".yaml", ".yml"):
                yield from (Path(place) for place in _named_in(path, environ) if "\0" not in place)
            elif path.suffix == ".conf":
                yield from (path.parent / found for found in OF_NATS.findall(_text(path)))


def _named_in(path: Path, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        document = as_given(parse(_text(path)), environ)
    except NotYaml:
        return
    for section, keys in PLACES.items():
        given = document.get(section) if isinstance(document, dict) else None
        places = {key: given[key] for key in keys if isinstance(given.get(key), str)} if isinstance(given, dict) else {}
        yield from places.values()
        yield from (f"{places[key].rstrip('/')}{ending}" for key in places if key == "store" for ending in OF_A_STORE)
    yield from _files(document)


def _files(node: Any, above: str = "") -> Iterator[str]:
    items = node.items() if isinstance(node, dict) else [("", each) for each in node] if isinstance(node, list) else ()
    for key, value in items:
        if isinstance(value, str) and key.upper().endswith(FILES):
            yield value
        elif (above, key) != OF_PLUGINS:
            yield from _files(value, key)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size < MOST_BYTES else ""
    except (OSError, UnicodeError):
        return ""
