"""Bus, agent and gateway under attack, as processes; and a client of the API, ours or an unprotected twin's.

Every legitimate client has a name and a secret, which an attack uses only where it says so: `TOKENS` of the API,
`KEYS` of senders of webhooks. Runs follow `script.yaml`; tools are the shipped plugins and those of `plugins/`.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import httpx2

from agent_service.bus.topology import topology
from agent_service.workbench.dev import free_port
from agent_service.workbench.dev_settings import PLUGINS
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from tests.http.wire import send
from tests.kit.processes import Service
from tests.kit.waiting import wait_until

HERE = Path(__file__).parent
TOKENS = {name: f"the-token-of-the-{name}-of-these-services" for name in ("operator", "reader", "waker")}
SCOPES = {"operator": ["wake", "read", "control", "operate"], "reader": ["read"], "waker": ["wake"]}
KEYS = {name: f"the-key-of-{name}-at-these-services" for name in ("peer", "ductile", "github")}
STANDARD_KEY = "whsec_dGhlIGtleSBvZiBzdGFuZGFyZCB3ZWJob29rcyBoZXJl"
JSON = {"Content-Type": "application/json"}
WITHIN_S = 10.0
GOAL = {"to": "agentic.start", "goal": "echo {/what}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    folder: Path
    api: str
    """Address of the agent's API."""
    ingress: str
    """Address of the gateway's webhooks."""
    probes: str
    """Address of the gateway's probes."""
    bus: str
    processes: tuple[Service, ...]

    def living(self) -> bool:
        """True if both services run and are ready."""
        return all(one.pid for one in self.processes) and all(_ready(url) for url in (self.api, self.probes))

    def last_words(self) -> str:
        return "\n".join(one.log.read_text()[-2000:] for one in self.processes)


@contextmanager
def running_services(folder: Path, **agent: Any) -> Iterator[Services]:
    """Services of the test's own, with further settings of the agent."""
    ports = {name: free_port() for name in ("api", "ingress", "probes")}
    with ExitStack() as held:
        bus = held.enter_context(_bus(folder))
        config = folder / "agentic.yaml"
        config.write_text(json.dumps(_settings(folder, bus, ports, agent)))
        services = Services(
            folder=folder,
            **{name: f"http://127.0.0.1:{port}" for name, port in ports.items()},
            bus=bus,
            processes=tuple(
                Service(package, config, folder / f"{package}.log") for package in ("ductile_gateway", "agent_service")
            ),
        )
        for one in services.processes:
            held.callback(one.kill)
            one.start()
        wait_until(services.living, services.last_words, within_s=90)
        yield services


@contextmanager
def _bus(folder: Path) -> Iterator[str]:
    async def prepare() -> None:
        async with connect(NatsSettings(urls=(server.url,))) as link:
            await set_up(link, topology(max_gib=0.5))

    server = EmbeddedNats(folder / "nats", sync_interval="1s")
    with asyncio.Runner() as runner:
        runner.run(server.start())
        try:
            runner.run(prepare())
            yield server.url
        finally:
            runner.run(server.stop())


def _settings(folder: Path, bus: str, ports: dict[str, int], agent: dict[str, Any]) -> dict[str, Any]:
    tokens = [{"name": name, "token": token, "scopes": SCOPES[name]} for name, token in TOKENS.items()]
    peer = {"keys": [{"id": "v1", "secret": KEYS["peer"]}], "accept": ["agentic.start", "agentic.tool_result"]}
    keys = {"ductile": KEYS["ductile"], "github": KEYS["github"], "standard": STANDARD_KEY}
    webhooks = {name: {"scheme": name, "keys": [{"secret": key}], "events": {"*": GOAL}} for name, key in keys.items()}
    return {
        "nats": {"urls": [bus]},
        "agent": {
            "store": str(folder / "agent"),
            "workspaces": str(folder / "workspaces"),
            "http": {"port": ports["api"], "tokens": tokens},
            "model": {"provider": "scripted", "script": str(HERE / "script.yaml")},
            **agent,
        },
        "gateway": {
            "store": str(folder / "gateway"),
            "http": {"port": ports["probes"]},
            "plugins": {"folders": [str(PLUGINS), str(HERE / "plugins")]},
            "ingress": {"port": ports["ingress"], "peers": {"ductile-here": peer}, "webhooks": webhooks},
            "outbound": {"callbacks": {"secret": STANDARD_KEY}},
        },
    }


def _ready(url: str) -> bool:
    with suppress(OSError), urlopen(f"{url}/readyz", timeout=5) as answer:  # noqa: S310 - our own address
        return bool(answer.status == HTTPStatus.OK)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCaller:
    """An address and the caller's token, if any."""

    url: str
    protected: bool
    token: str | None = None

    def as_(self, name: str | None) -> "HttpCaller":
        """Returns a client with the token of that name, or with none."""
        return HttpCaller(url=self.url, protected=self.protected, token=TOKENS[name] if name else None)

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        all_of_them = {**bearer, **(headers or {})}
        raw = {name.encode(): value.encode("latin-1") for name, value in all_of_them.items()}
        async with httpx2.AsyncClient(base_url=self.url, verify=False, trust_env=False, timeout=WITHIN_S) as client:
            return await client.request(method, path, headers=raw, **more)

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.ask("GET", path, **more)

    async def begin(self, goal: str, **more: Any) -> str:
        answer = await self.ask("POST", "/v1/wake", json={"goal": goal, **more})
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text
        return str(answer.json()["run_id"])

    async def raw(self, request: str) -> str:
        """Sends bytes and returns everything until the server closes the connection or falls silent."""
        return (await send(self.port, request)).text
