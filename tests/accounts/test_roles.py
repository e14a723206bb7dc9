"""Under the accounts of deploy/nats/ each role can do its work."""

import json
from pathlib import Path

import httpx2

from agent_service.workbench.dev import PLUGINS, free_port
from tests.accounts.house import House, served
from tests.e2e.agents import another_agent, another_gateway
from tests.kit.waiting import until


def configured(made: House, folder: Path) -> Path:
    """Both services in one file, each with a login of its own."""
    document = {
        "agent": {
            "nats": made.section("agent"),
            "store": str(folder / "agent"),
            "workspaces": str(folder / "workspaces"),
            "http": {"port": free_port()},
        },
        "gateway": {
            "nats": made.section("gateway"),
            "store": str(folder / "gateway"),
            "http": {"port": free_port()},
            "plugins": {"folders": [str(PLUGINS)]},
        },
    }
    path = folder / "agentic.yaml"
    path.write_text(json.dumps(document))
    return path


async def test_a_run_is_done_and_nothing_is_denied(tmp_path: Path) -> None:
    with served(tmp_path / "nats") as made:
        said = made.set_up()
        assert said.code == 0, said
        config = configured(made, tmp_path)
        async with another_gateway(config) as gateway, another_agent(config) as agent:
            await gateway.ready()
            address = await agent.ready()
            async with httpx2.AsyncClient(base_url=address, trust_env=False) as client:
                await until(lambda: ready(client))
                woken = await client.post("/v1/wake", json={"goal": "show me how this works"})
                run_id = woken.json()["run_id"]
                await until(lambda: is_done(client, run_id))
                await client.get("/metrics")
                await client.get("/v1/health")
                await client.get(f"/v1/runs/{run_id}/why")
        assert made.violations() == []


async def ready(client: httpx2.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def is_done(client: httpx2.AsyncClient, run_id: str) -> bool:
    view = (await client.get(f"/v1/runs/{run_id}")).json()
    return bool(view["state"] == "done")
