"""An installation as an operator has it: a bus, a gateway and an agent with one configuration, begun one by one.

Another one in another folder is another machine, on which nothing is.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2

from agent_service.bus.topology import topology
from groundwork.nats.completing import set_up
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from tests.cli.calling import Called, agentic
from tests.e2e.bodies import PROBES, view, wake
from tests.kit.fleet import FleetOptions, Member, configure
from tests.kit.waiting import until

WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    folder: Path
    nats: EmbeddedNats
    agent: Member
    gateway: Member

    @property
    def config(self) -> Path:
        return self.agent.config

    @property
    def url(self) -> str:
        return self.agent.url

    async def begin(self) -> None:
        """Both services, until they are ready."""
        self.gateway.start()
        self.agent.start()
        await self.gateway.ready()
        await self.agent.ready()

    def lose(self) -> None:
        """Both are killed."""
        self.agent.kill()
        self.gateway.kill()

    def call(self, *arguments: str | Path) -> Called:
        return agentic(*arguments, "--config", self.config, "--json")

    async def wake(self, goal: str) -> str:
        return await wake(self, goal)

    async def waits_for(self, run_id: str, kind: str) -> None:
        async def waits() -> bool:
            return ((await view(self, run_id)).get("waiting_for") or {}).get("kind") == kind

        await until(waits, within_s=WITHIN_S)

    async def comes_to(self, run_id: str, state: str) -> dict[str, Any]:
        """How the run stands, once it is in that state."""
        found: dict[str, Any] = {}

        async def is_there() -> bool:
            found.update(await view(self, run_id))
            return bool(found["state"] == state)

        await until(is_there, within_s=WITHIN_S, otherwise=lambda: f"it is {found}")
        return found

    async def answer(self, run_id: str, outcome: str) -> None:
        """A person's word on a write in doubt."""
        said = {"kind": "answer", "outcome": outcome, "message": "I have looked."}
        async with httpx2.AsyncClient(base_url=self.url, trust_env=False) as client:
            answer = await client.post(f"/v1/runs/{run_id}/signals", json=said)
            assert answer.is_success, answer.text


@asynccontextmanager
async def machine(
    folder: Path,
    script: Path,
    *,
    plugins: tuple[Path, ...] = (PROBES,),
    store: Literal["jetstream", "sqlite"] = "sqlite",
    **agent: Any,
) -> AsyncIterator[Machine]:
    """Its bus is set up; the services are not begun."""
    async with EmbeddedNats(folder / "nats", sync_interval="1s") as nats:
        link = await connect(NatsSettings(urls=(nats.url,)))
        await set_up(link, topology(max_gib=0.2, shared=store == "jetstream"))
        await link.close()
        options = FleetOptions(folder=folder, store=store, script=script, plugins=plugins, agent=agent)
        made = Machine(folder=folder, nats=nats, agent=Member("agent", 1, folder), gateway=Member("gateway", 1, folder))
        for member in (made.agent, made.gateway):
            configure(member, options, (nats.url,))
        try:
            yield made
        finally:
            made.lose()
