"""The gateway's probes: it lives, it is ready, and what is wrong where it is not; and its log tells outages once."""

import json
from pathlib import Path
from typing import Any

import httpx2

from ductile_gateway.probes.http import create_app
from ductile_gateway.probes.server import Readiness
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.gateway.on_nats import a_bus
from tests.gateway.served import Gateway
from tests.kit.waiting import until


def asked(readiness: Readiness) -> httpx2.AsyncClient:
    app = create_app(readiness, counted, ["localhost"])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://10.1.2.3:9")


async def counted() -> bytes:
    return b"agentic_x_total 1\n"


async def test_what_is_wrong_is_named_and_all_else_is_ok() -> None:
    readiness = Readiness()
    readiness.needs("nats", lambda: "")
    readiness.needs("ductile", lambda: "nothing answers")
    async with asked(readiness) as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()) == (
            503,
            {"ready": False, "checks": {"nats": "ok", "ductile": "nothing answers"}},
        )
        readiness.needs("ductile", lambda: "")
        assert (await client.get("/readyz")).json()["ready"] is True
        assert (await client.get("/healthz")).json() == {"alive": True}


async def ready(gateway: Gateway) -> dict[str, Any]:
    async with httpx2.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        try:
            answer = await client.get("/readyz")
        except httpx2.TransportError:
            return {}
    found: dict[str, Any] = answer.json()
    assert (answer.status_code == 200) is found["ready"]
    return found


def outages(gateway: Gateway) -> list[tuple[str, str, str]]:
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    told = [line for line in lines if str(line.get("event")).startswith("outage")]
    assert all(line["why"] for line in told)
    return [(line["level"], line["msg"], line["event"]) for line in told]


async def test_a_bus_that_is_away_makes_it_unready_and_is_told_once_with_the_reason(
    link: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    await a_bus(link)
    gateway = Gateway(tmp_path, nats_server.url, lease_s=60)
    with gateway.serving():
        await until(lambda: is_ready(gateway), within_s=30)
        assert set((await ready(gateway))["checks"]) == {"nats", "store", "tools", "requests"}
        nats_server.kill()
        await until(lambda: says(gateway, "nats", "not connected"), within_s=30)
        await until(lambda: "NATS is away" in gateway.log.read_text(), within_s=30)
        await nats_server.start()
        await until(lambda: is_ready(gateway), within_s=30)
    assert outages(gateway) == [
        ("WARNING", "NATS is away", "outage_began"),
        ("WARNING", "NATS is back", "outage_over"),
    ]


async def is_ready(gateway: Gateway) -> bool:
    return bool((await ready(gateway)).get("ready"))


async def says(gateway: Gateway, check: str, part: str) -> bool:
    return part in (await ready(gateway)).get("checks", {}).get(check, "")
