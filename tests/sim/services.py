"""Both services unchanged: each life in its own process and folder, with the disk of its machine."""

import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agent_service import app as agent_app
from agent_service.bus.topology import topology
from agent_service.run.journal import Commit
from agent_service.settings import AgentSettings
from agent_service.views.workspace.rendering import Folders
from ductile_gateway import app as gateway_app
from ductile_gateway.settings import GatewaySettings
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from groundwork.service.errors import TryAgain, causes
from groundwork.sqlite.file import use_opener
from tests.sim.course import Course
from tests.sim.invariants import SECRET
from tests.sim.machines.boundary import Boundary
from tests.sim.machines.disk import Disk
from tests.sim.machines.network import Network
from tests.sim.machines.time import Process, Scheduler, Stuck
from tests.sim.servers.callers import AGENT_DOOR, PROBES_DOOR
from tests.sim.servers.nats_server import NatsServer

Json = dict[str, Any]
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made there
RESTART_S = 0.2
"""Seconds until an ended process is restarted."""
NATS = NatsSettings(urls=("nats://bus:4222",))


@cache
def configurations(*, shared: bool) -> Mapping[str, tuple[Json, Mapping[str, Json]]]:
    boundary = Boundary(scheduler := Scheduler(1))
    network, server = Network(boundary), NatsServer(boundary)
    network.serve("bus", server)

    async def setting_up() -> None:
        async with connect(NATS, "setup") as link:
            await set_up(link, topology(shared=shared))

    process = Process("setup", scheduler, network)
    process.begin(setting_up())
    assert scheduler.run_until(lambda: not process.alive, within_s=30)
    assert process.why is None, process.why
    return server.jetstream.configurations()


class NoFolders(Folders):
    def committed(self, change: Commit) -> None: ...

    async def run(self) -> None: ...


class Services:
    def __init__(self, course: Course, network: Network, boundary: Boundary) -> None:
        self.processes: dict[str, Process] = {}
        """Newest life of each service."""
        self.dead: list[Process] = []
        self.disks: dict[str, Disk] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="sim-", dir=SHARED_MEMORY))
        self.course = course
        self._scheduler = boundary.scheduler
        self._network = network
        self._boundary = boundary

    def begin(self) -> None:
        for number in range(self.course.gateways):
            self.start(f"gateway-{number}" if number else "gateway")
        for number in range(self.course.agents):
            self.start(f"agent-{number}" if number else "agent")

    def start(self, name: str) -> Process:
        """Starts `agent`, `gateway`, or another service whose name begins so."""
        process = Process(name, self._scheduler, self._network)
        disk = self.disks.setdefault(name, Disk(self._boundary))
        serve = self._gateway(name) if name.startswith("gateway") else self._agent(name)

        async def served() -> None:
            use_opener(disk.opener(process))
            await serve

        if name in self.processes:
            self.dead.append(self.processes[name])
        self.processes[name] = process
        process.begin(served())
        return process

    def start_later(self, process: Process) -> None:
        def starts() -> None:
            if self.processes.get(process.name) is process:
                self.start(process.name)

        self._scheduler.after(RESTART_S, starts)

    def look_after(self) -> None:
        """Restarts processes that ended because they could not go on, as a supervisor. Raises Stuck for any other
        end."""
        while self._scheduler.ended:
            process = self._scheduler.ended.pop()
            if process.why is None or self.processes.get(process.name) is not process:
                continue
            if not any(isinstance(cause, TryAgain) for cause in causes(process.why)):
                raise Stuck(f"{process.name} ended by itself: {process.why!r}") from process.why
            self.start_later(process)

    def at(self, door: str) -> Process | None:
        return next((one for one in self.processes.values() if one.alive and door in one.doors), None)

    def close(self) -> list[Process]:
        shutil.rmtree(self.folder, ignore_errors=True)
        return [*self.dead, *self.processes.values()]

    def _agent(self, name: str) -> Coroutine[Any, Any, None]:
        settings = AgentSettings.model_validate(
            {
                "nats": NATS,
                "http": {"port": 0},
                **self._store_of(name, shared=self.course.agents > 1),
                "keys_file": self.folder / "agent.keys",
                "limits": {"retry_base_s": 0.5},
                "workspaces": self.folder / "workspaces",
                "model": {
                    "provider": "openai",
                    "model": "sim",
                    "base_url": "http://model/v1",
                    "price": {"input": 1.0, "output": 2.0},
                },
                **self.course.agent,
            }
        )
        called = any(post.door == AGENT_DOOR for post in self.course.posts)
        return agent_app.serve(settings, folders=NoFolders, http=called)

    def _gateway(self, name: str) -> Coroutine[Any, Any, None]:
        settings = GatewaySettings.model_validate(
            {
                "nats": NATS,
                "http": {"host": PROBES_DOOR, "port": 0},
                **self._store_of(name, shared=self.course.gateways > 1),
                "keys_file": self.folder / "gateway.keys",
                "runner": "ductile",
                "ductile": {"url": "http://ductile", "token": SECRET, "allow_http_nonloopback": True},
                "tools": tuple(self.course.plugins),
                **self.course.gateway,
            }
        )
        return gateway_app.serve(settings)

    def _store_of(self, name: str, *, shared: bool) -> Json:
        return {"store": "jetstream", "cache": self._home(name)} if shared else {"store": self._home(name)}

    def _home(self, name: str) -> Path:
        """Each life has its own folder under the same path, because only the kernel could release the lock of a killed
        process."""
        life, home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)), self.folder / f"home-of-{name}"
        (life / "store.id").write_text(f"store_{name}\n")
        home.unlink(missing_ok=True)
        home.symlink_to(life)
        return home
