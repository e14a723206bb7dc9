"""A JetStream cluster of three real nats-servers that tests kill, stop, restart and cut off.

    async def test_a_commit_outlives_its_leader(cluster: Cluster, cluster_link: NatsLink) -> None:
        await set_up(cluster_link, topology(...))      # with num_replicas: 3
        (await cluster.leader("AGENTIC_RUNS")).kill()           # SIGKILL; it is not restarted
        ...

All tests of a process share `cluster`; it is healed (dead nodes started, stopped ones resumed) and emptied after each.
The nodes of a `wired` cluster talk over wires that can be cut. A node that is cut off still answers its clients; a
client is cut off by its own `Way` to each node.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
import nats.errors
import pytest
from nats.js.errors import NotFoundError, ServiceUnavailableError

from agent_service.workbench.dev import free_port
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Failure
from tests.kit.bus import LARGE
from tests.kit.cut_wire import Way, wire
from tests.kit.processes import Process
from tests.kit.waiting import until

NODES = 3
READY_WITHIN_S = 40.0
LEADER_WITHIN_S = 20.0
"""An election takes 4 to 9 s."""
PROBE = "PROBE"
NOWHERE = "127.0.0.1:9"


class Node(Process):
    """One server. Folder, ports and store stay the same across restarts."""

    def __init__(self, name: str, folder: Path, sync_interval: str) -> None:
        self.name = name
        self.port, self.routes_port, self.monitor_port = free_port(), free_port(), free_port()
        self.folder = folder / name
        self._sync_interval = sync_interval
        self._config_file = self.folder / "nats-server.json"
        command = (str(Path(sys.executable).parent / "nats-server"), "--config", str(self._config_file))
        super().__init__(command, self.folder / "nats-server.log")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def configure(self, routes: Sequence[int]) -> None:
        """Writes the configuration before the first start. `routes` are the ports of the other nodes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._config_file.write_text(json.dumps(self._config(routes), indent=2, ensure_ascii=False))

    async def healthy(self) -> bool:
        """True if the node and all its replicas are up to date."""
        with contextlib.suppress(httpx2.TransportError):
            async with httpx2.AsyncClient(trust_env=False, timeout=2) as client:
                answer = await client.get(f"http://127.0.0.1:{self.monitor_port}/healthz")
                return answer.status_code == httpx2.codes.OK
        return False

    def _config(self, routes: Sequence[int]) -> dict[str, Any]:
        cluster = {
            "name": "tests",
            "listen": f"127.0.0.1:{self.routes_port}",
            "no_advertise": True,  # clients keep to the addresses that they were given
            "advertise": NOWHERE,  # and nodes to theirs: there is no way past a wire
            "routes": [f"nats-route://127.0.0.1:{port}" for port in routes],
        }
        return {
            "server_name": self.name,
            "listen": f"127.0.0.1:{self.port}",
            "http": f"127.0.0.1:{self.monitor_port}",
            "max_payload": 1 << 20,
            "jetstream": {
                "store_dir": str(self.folder / "store"),
                "sync_interval": self._sync_interval,
                "max_file_store": LARGE,
                "limits": {"duplicate_window": "168h"},
            },
            **({"cluster": cluster} if routes else {}),
        }


class Cluster:
    """Started by `start` or as a context; one node is a standalone server. `ways` maps (from, to) to the wire between
    two nodes."""

    def __init__(self, folder: Path, *, nodes: int = NODES, sync_interval: str = "always") -> None:
        self.nodes = tuple(Node(f"n{number + 1}", folder, sync_interval) for number in range(nodes))
        self.ways: dict[tuple[str, str], Way] = {}

    @property
    def settings(self) -> NatsSettings:
        return NatsSettings(urls=tuple(node.url for node in self.nodes))

    @property
    def living(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.awake)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()

    async def start(self) -> None:
        for node in self.nodes:
            node.configure([other.routes_port for other in self.nodes if other is not node])
            node.start()
        await self.ready()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    async def ready(self) -> None:
        """Waits until all live nodes are up to date and a stream with a replica on each can be made."""
        await until(self._healthy, within_s=READY_WITHIN_S, otherwise=self._logs)
        await until(self._takes_a_stream, within_s=READY_WITHIN_S, otherwise=self._logs)

    async def heal(self) -> None:
        for way in self.ways.values():
            way.mend()
        for node in self.nodes:
            node.go_on()
            if not node.awake:
                node.start()
        await self.ready()

    async def leader(self, stream: str) -> Node:
        async def elected() -> Node | None:
            name = (await self._info(stream)).get("cluster", {}).get("leader")
            return next((node for node in self.living if node.name == name), None)

        leader: Node = await until(elected, within_s=LEADER_WITHIN_S, otherwise=lambda: f"{stream} has no leader")
        return leader

    def cut_off(self, *nodes: Node) -> None:
        """Isolates these nodes as a group until `heal`. Needs a `wired` cluster."""
        assert self.ways, "this cluster has no wires to cut"
        names = {node.name for node in nodes}
        for ends, way in self.ways.items():
            if len(names.intersection(ends)) == 1:
                way.cut()

    def linked(self) -> AbstractAsyncContextManager[NatsLink]:
        return connect(NatsSettings(urls=tuple(node.url for node in self.living)), timeout_s=10)

    async def empty(self) -> None:
        async with self.linked() as link:
            for stream in await link.client.jetstream().streams_info():
                await delete(link, stream.config.name or "")

    async def _healthy(self) -> bool:
        return all([await node.healthy() for node in self.living])

    async def _takes_a_stream(self) -> bool:
        """For a while after its start a node counts as offline if another has not heard of it."""
        with contextlib.suppress(Failure, nats.errors.Error):
            async with self.linked() as link:
                await link.client.jetstream().add_stream(name=PROBE, storage="memory", num_replicas=len(self.living))
                return await link.client.jetstream().delete_stream(PROBE)
        return False

    async def _info(self, stream: str) -> dict[str, Any]:
        with contextlib.suppress(Failure):
            async with self.linked() as link:
                answer: dict[str, Any] = json.loads(
                    await link.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeouts_s=(1,))
                )
                return answer
        return {}

    def _logs(self) -> str:
        return "\n".join(node.log.read_text(errors="replace")[-800:] for node in self.nodes)


async def delete(link: NatsLink, stream: str) -> None:
    """Deletes the stream if it exists. A busy cluster may not answer for a while."""

    async def deleted() -> bool:
        try:
            return await link.client.jetstream().delete_stream(stream)
        except NotFoundError:
            return True
        except (nats.errors.Error, ServiceUnavailableError):
            return False

    await until(deleted, within_s=LEADER_WITHIN_S)


@asynccontextmanager
async def wired(cluster: Cluster) -> AsyncIterator[Cluster]:
    async with contextlib.AsyncExitStack() as wires:
        wires.callback(cluster.kill)
        near: dict[tuple[str, str], int] = {}
        for one in cluster.nodes:
            for other in cluster.nodes:
                if one is not other:
                    way = cluster.ways[one.name, other.name] = Way()
                    near[one.name, other.name] = await wires.enter_async_context(wire(other.routes_port, way.rule))
        for node in cluster.nodes:
            node.configure([port for (start, _), port in near.items() if start == node.name])
            node.start()
        await cluster.ready()
        yield cluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of this process. Use `cluster`, which is emptied and restored."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    with asyncio.Runner() as runner:
        runner.run(made.start())
    yield made
    made.kill()


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    yield shared_cluster
    await shared_cluster.heal()
    await shared_cluster.empty()


@pytest.fixture
async def cluster_link(cluster: Cluster) -> AsyncIterator[NatsLink]:
    async with connect(cluster.settings, timeout_s=10) as link:
        yield link
