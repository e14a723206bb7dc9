"""Under the accounts of deploy/nats/ each role can do its work, and denials are reported."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.workbench.dev import free_port
from agent_service.workbench.dev_settings import PLUGINS
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.accounts.house import EXECUTOR, House, served
from tests.cli.invoke import agentic
from tests.executors.shipped import PYTHON, asking
from tests.kit.processes import Service
from tests.kit.stack import another, ready, written
from tests.kit.waiting import until

ASKS_BOTH = asking({"": [(PYTHON.tool, "handle", PYTHON.arguments), ("echo", "handle", {"message": "hello"})]})
"""One tool of an executor with its own login, and one of the gateway."""


@asynccontextmanager
async def at_work(
    bus: House, folder: Path, script: dict[str, Any]
) -> AsyncIterator[tuple[httpx2.AsyncClient, Service]]:
    config = configured(bus, folder, script)
    async with another("ductile_gateway", config) as gateway, another("agent_service", config) as agent:
        await ready(gateway)
        async with httpx2.AsyncClient(base_url=await ready(agent), trust_env=False) as api:
            await until(lambda: answers_with(api, "/readyz", "", 200))
            yield api, agent


async def answers_with(api: httpx2.AsyncClient, page: str, said: str, status: int = 200) -> bool:
    answer = await api.get(page)
    return answer.status_code == status and said in answer.text


def configured(bus: House, folder: Path, script: dict[str, Any]) -> Path:
    agent = {
        "nats": bus.section("agent"),
        "store": str(folder / "agent"),
        "workspaces": str(folder / "workspaces"),
        "http": {"port": free_port()},
        "model": {"provider": "scripted", "script": str(written(script, folder))},
    }
    gateway = {
        **bus.settings("gateway"),
        "store": str(folder / "gateway"),
        "http": {"port": free_port()},
        "plugins": {"folders": [str(PLUGINS)]},
    }
    path = folder / "agentic.yaml"
    path.write_text(json.dumps({"agent": agent, "gateway": gateway}))
    return path


async def asked(link: NatsLink, endpoint: str, **body: Any) -> Any:
    return json.loads(await link.request(f"{subjects.SERVICE_AGENT}.{endpoint}", json.dumps(body).encode()))


@pytest.mark.parametrize("also", ["", "\nfeature_flags { js_ack_fc_v2: true }\n"], ids=["", "acks-of-accounts"])
async def test_a_run_is_done_by_all_roles_together_and_nothing_is_denied(tmp_path: Path, also: str) -> None:
    """Covers both forms of acknowledgement subjects (NATS ADR-15)."""
    with served(tmp_path / "nats", also=also) as bus:
        assert (await asyncio.to_thread(bus.set_up)).code == 0
        login = bus.section(EXECUTOR)
        names = {"NATS_NKEY": "nkey_seed_file", "NATS_CA": "tls_ca", "NATS_INBOX_PREFIX": "inbox_prefix"}
        with PYTHON.at_work(tmp_path, login["urls"][0], **{name: login[field] for name, field in names.items()}):
            await until(lambda: is_on_offer(bus))
            async with at_work(bus, tmp_path, ASKS_BOTH) as (api, _), bus.login("publisher") as publisher:
                run_id = (await asked(publisher, "wake", goal="ask both", wake_id="w-1"))["run_id"]
                await until(lambda: answers_with(api, f"/v1/runs/{run_id}", '"state":"done"'), within_s=30)
                assert (await asked(publisher, "status", run_id=run_id))["state"] == "done"
                for page in ("/metrics", "/v1/health", f"/v1/runs/{run_id}/why"):
                    assert await answers_with(api, page, ""), page
                checked = await asyncio.to_thread(agentic, "doctor", "--config", tmp_path / "agentic.yaml", "--json")
                assert [check for check in checked.document["checks"] if check["mark"] == "wrong"] == []
                async with bus.login("operator") as operator:
                    await looked_after(api, operator)
        assert bus.violations() == []


async def looked_after(api: httpx2.AsyncClient, operator: NatsLink) -> None:
    """An operator publishes, cancels and looks."""
    unknown = "run_01M808MS3MJ9K8CQKG3J135SFS"
    await operator.publish(subjects.START, b'{"goal": ""}', msg_id="bad", headers={})
    await until(lambda: answers_with(api, "/v1/dead-letters", "agentic.start"))
    body = json.dumps({"run_id": unknown}).encode()
    await operator.publish(subjects.CANCEL, body, msg_id="cancel", headers={})
    assert (await asked(operator, "status", run_id=unknown))["error"]["code"] == "unknown_run"


async def is_on_offer(bus: House) -> bool:
    async with bus.login("agent") as link:
        try:
            return EXECUTOR.encode() in await link.request(subjects.CATALOG, b"", timeouts_s=(1,))
        except TryAgain:
            return False


async def test_what_an_agent_is_denied_that_it_needs_makes_it_not_ready_and_is_reported(tmp_path: Path) -> None:
    with served(tmp_path / "nats") as bus:
        await asyncio.to_thread(bus.set_up)
        accounts = bus.folder / "accounts.conf"
        accounts.write_text(accounts.read_text().replace(f'"{subjects.WAKE_ACCEPTED}"\n', ""))
        bus.reload()
        async with at_work(bus, tmp_path, ASKS_BOTH) as (api, agent):
            assert (await api.post("/v1/wake", json={"goal": "say"})).status_code == 202
            await until(lambda: answers_with(api, "/readyz", f'publish to \\"{subjects.WAKE_ACCEPTED}\\"', 503))
            assert subjects.WAKE_ACCEPTED in agent.log.read_text()
