"""How the agent is, and all that it needs."""

import asyncio
from collections.abc import Sequence

import httpx2

from agent_service.api.health import HealthCalls
from agent_service.telling.findings import ok, wrong
from groundwork.service.errors import TryAgain
from schemas.gateway_status import Finding
from tests.http.house import House


async def all_is_well() -> dict[str, str]:
    return {"bus": "", "store": ""}


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


async def test_what_the_gateway_says_of_ductile_is_ductiles() -> None:
    told = await HealthCalls(all_is_well, {"gateway": gateway}).show_health()
    assert [(check.part, check.name, check.mark) for check in told.checks] == [
        ("gateway", "gateway", "ok"),
        ("ductile", "ductile token", "wrong"),
        ("nats", "bus", "ok"),
        ("store", "store", "ok"),
    ]


async def test_a_part_that_says_nothing_in_time_holds_up_no_other() -> None:
    calls = HealthCalls(all_is_well, {"nats": away, "gateway": never}, within_s=0.05)
    marks = {check.name: (check.mark, check.text) for check in (await calls.show_health()).checks}
    assert marks["nats"] == ("wrong", "not connected to NATS")
    assert marks["gateway"] == ("warning", "it did not say within 0.05 s how it is")
    assert marks["store"][0] == "ok"


async def test_many_who_ask_at_once_are_told_the_same() -> None:
    asked = []

    async def look() -> Sequence[Finding]:
        asked.append(1)
        return [ok("gateway", "here")]

    calls = HealthCalls(all_is_well, {"gateway": look})
    await asyncio.gather(*(calls.show_health() for _ in range(20)))
    assert len(asked) == 1
