"""Several gateways before one Ductile: a job that a gateway had made which died is followed by another, to its end."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.ductile.gateway_house import BRISK, CALL_ID
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.on_nats import send
from tests.gateway.parts import a_request
from tests.gateway.served import Fleet, ending, fleet
from tests.kit.waiting import until

CALLS = 3


@pytest.fixture
async def ships(
    tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats, ductile: DuctileUnderTest
) -> AsyncIterator[Fleet]:
    talk = {"url": ductile.url, "token": ductile.token, **BRISK}
    async with fleet(tmp_path, link, nats_server.url, runner="ductile", ductile=talk, tools={"probe": {}}) as ships:
        yield ships


async def ask(ships: Fleet, payload: dict[str, Any]) -> None:
    for step in range(1, CALLS + 1):
        await send(ships.link, a_request("note", payload, tool="probe", step=step), "probe")


def executed(ductile: DuctileUnderTest) -> list[str]:
    """The calls whose jobs have begun, as often as they have."""
    return [one.payload[CALL_ID] for one in ductile.executions if CALL_ID in one.payload]


async def test_the_jobs_of_a_gateway_that_was_killed_are_followed_by_another_and_no_other_is_made(
    ships: Fleet, ductile: DuctileUnderTest
) -> None:
    with ships.serving("one") as first:
        await ships.ready("one")
        await ask(ships, {"do": "hold", "until": str(ships.marks / "go")})
        await until(lambda: len(executed(ductile)) == CALLS, within_s=30)
        with ships.serving("two"):
            await ships.ready("two")
            first.kill()
            first.wait()
            ships.go()
            told = await ships.results(CALLS)
    assert [ending(result) for result in told] == ["ok"] * CALLS
    assert len(executed(ductile)) == len(set(executed(ductile))) == CALLS
