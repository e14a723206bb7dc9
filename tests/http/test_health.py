"""How the agent is, and all that it needs."""

import asyncio
from collections.abc import Sequence

import httpx2

from agent_service.telling.plain import ok, wrong
from groundwork.service.errors import TryAgain
from schemas.status import Finding
from tests.http.house import House


async def gateway() -> Sequence[Finding]:
    return [ok("gateway", "7 tools"), wrong("ductile token", "the token is refused", remedy="make another")]


async def never() -> Sequence[Finding]:
    await asyncio.Event().wait()
    return []


async def away() -> Sequence[Finding]:
    raise TryAgain("not connected to NATS")


async def test_what_the_agent_needs_is_told_by_part(client: httpx2.AsyncClient, house: House) -> None:
    house.wrong["bus"] = "another agent has the bus"
    told = (await client.get("/v1/health")).json()
    assert {(check["part"], check["name"], check["mark"]) for check in told["checks"]} == {
        ("nats", "bus", "wrong"),
        ("store", "store", "ok"),
        ("gateway", "skills", "ok"),
        ("agent", "halt", "ok"),
    }
    (bus,) = (check for check in told["checks"] if check["name"] == "bus")
    assert (bus["text"], "agentic doctor" in bus["remedy"]) == ("another agent has the bus", True)
