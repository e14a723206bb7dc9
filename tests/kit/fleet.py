"""Several agents and gateways on one cluster, as processes of this machine with the same configuration.

    async with fleet(cluster, FleetOptions(folder=tmp_path, agents=3, gateways=2, script=script)) as ships: ...

Killed processes are not restarted. With `cut`, each agent and gateway reaches the bus over its own wires, which its
`way` cuts.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agent_service.bus.topology import topology
from agent_service.workbench.dev import free_port
from agent_service.workbench.dev_settings import PLUGINS
from groundwork.nats.topology import set_up
from groundwork.service.errors import Failure
from tests.kit.cluster import Cluster
from tests.kit.cut_wire import Way, wire
from tests.kit.processes import Service
from tests.kit.stack import is_ready, recorded, written
from tests.kit.waiting import until

READY_WITHIN_S = 40.0
Kind = Literal["agent", "gateway"]
PACKAGES: Mapping[Kind, str] = {"agent": "agent_service", "gateway": "ductile_gateway"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """`store` is `jetstream`, or `sqlite` for one agent and one gateway."""

    folder: Path
    agents: int = 1
    gateways: int = 1
    store: Literal["jetstream", "sqlite"] = "sqlite"
    replicas: int = 3
    script: Mapping[str, Any] | None = None
    plugins: tuple[Path, ...] = (PLUGINS,)
    written: tuple[Path, ...] = ()
    """Paths that plugins may write besides those of the script."""
    agent: Mapping[str, Any] = field(default_factory=dict)
    gateway: Mapping[str, Any] = field(default_factory=dict)
    begun: bool = True
    """False leaves starting the processes to the test."""
    cut: bool = False
    older: Path | None = None
    """Checkout of an earlier version that all run at first."""


class Member(Service):
    """An agent or a gateway, with its own address."""

    def __init__(self, kind: Kind, number: int, folder: Path) -> None:
        self.kind = kind
        self.name = f"{kind}-{number}"
        self.port = free_port()
        self.way = Way()
        self.gave_up: list[str] = []
        """Its last words at each end of its own before a restart."""
        super().__init__(PACKAGES[kind], folder / f"{self.name}.yaml", folder / "logs" / f"{self.name}.log")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ready(self) -> None:
        """Waits until it is ready. Restarts it if it ends by itself, as a supervisor would."""
        await until(self._says_so, within_s=READY_WITHIN_S, otherwise=self._last_words)

    async def _says_so(self) -> bool:
        if self.pid is None:
            self.gave_up.append(self.log.read_text(errors="replace").rpartition("CRITICAL")[2].strip())
            self.start()
        return await is_ready(self)

    def _last_words(self) -> str:
        return f"{self.name} is not ready: {self.log.read_text(errors='replace')[-2000:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    cluster: Cluster
    options: FleetOptions
    agents: tuple[Member, ...]
    gateways: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        return (*self.agents, *self.gateways)

    async def heal(self) -> None:
        for member in self.members:
            member.way.mend()
            member.go_on()
            if member.pid is None:
                member.start()
        for member in self.members:
            await member.ready()


@asynccontextmanager
async def fleet(cluster: Cluster, options: FleetOptions) -> AsyncIterator[Fleet]:
    """Sets the cluster up and starts all processes; kills them at the end."""
    await until(lambda: _is_set_up(cluster, options), within_s=READY_WITHIN_S)
    made = Fleet(
        cluster=cluster,
        options=options,
        agents=tuple(Member("agent", number + 1, options.folder) for number in range(options.agents)),
        gateways=tuple(Member("gateway", number + 1, options.folder) for number in range(options.gateways)),
    )
    async with contextlib.AsyncExitStack() as wires:
        for member in made.members:
            urls = await _wired(cluster, member, wires) if options.cut else cluster.settings.urls
            configure(member, options, urls)
            member.code = options.older
            wires.callback(member.kill)
        if options.begun:
            await made.heal()
        yield made


async def _is_set_up(cluster: Cluster, options: FleetOptions) -> bool:
    """Retries: a busy node may count as offline for a moment, and then no stream with a replica there is made."""
    wanted = topology(replicas=options.replicas, max_gib=1, shared=options.store == "jetstream")
    with contextlib.suppress(Failure):
        async with cluster.linked() as link:
            await set_up(link, wanted)
            return True
    return False


async def _wired(cluster: Cluster, member: Member, wires: contextlib.AsyncExitStack) -> tuple[str, ...]:
    made = [wire(node.port, member.way.rule) for node in cluster.nodes]
    return tuple([f"nats://127.0.0.1:{await wires.enter_async_context(one)}" for one in made])


def configure(member: Member, options: FleetOptions, urls: tuple[str, ...]) -> None:
    folder = options.folder
    script = {} if options.script is None else {"script": str(written(options.script, folder))}
    marks = () if options.script is None else recorded(options.script)
    folder.mkdir(parents=True, exist_ok=True)
    agent = {
        **_stored(options, folder / "agent"),
        "workspaces": str(folder / "workspaces"),
        "http": {"host": "127.0.0.1", "port": member.port},
        "model": {"provider": "scripted"} | script,
        "log": {"level": "warning"},
        **options.agent,
    }
    gateway = {
        **_stored(options, folder / "gateway"),
        "http": {"host": "127.0.0.1", "port": member.port},
        "plugins": {"folders": _named(options.plugins), "write": _named((*options.written, *marks))},
        "log": {"level": "warning"},
        **options.gateway,
    }
    settings = {"nats": {"urls": list(urls)}, "agent": agent, "gateway": gateway}
    member.config.write_text(json.dumps(settings, indent=2))


def _named(paths: tuple[Path, ...]) -> list[str]:
    return [str(path) for path in paths]


def _stored(options: FleetOptions, folder: Path) -> dict[str, str]:
    """Copies of all agents of a machine are in slots of one folder, and their keys in one file."""
    if options.store == "sqlite":
        return {"store": str(folder)}
    return {"store": "jetstream", "cache": str(folder), "keys_file": f"{folder}.keys"}
