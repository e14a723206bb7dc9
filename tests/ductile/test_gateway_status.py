"""A gateway before a Ductile tells how both are, from its first moment on; and what comes of calls that it gave up."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_service.cli.doctor.tools import gateway as doctor
from agent_service.settings import AgentSettings
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.status import Finding
from tests.ductile.gateway_house import House, house
from tests.ductile.under_test import DuctileUnderTest
from tests.kit.waiting import until


@pytest.fixture
async def home(ductile: DuctileUnderTest, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, ductile) as opened:
        yield opened


async def checks(link: NatsLink) -> dict[str, Finding]:
    """What the doctor says of the gateway."""
    return {check.name: check async for check in doctor(link, AgentSettings())}


async def mark_of(link: NatsLink, name: str) -> str:
    found = (await checks(link)).get(name)
    return found.mark if found else ""


async def no_catalog(link: NatsLink) -> bool:
    try:
        await link.request(subjects.CATALOG, b"", timeout_s=1)
    except TryAgain:
        return True
    return False


async def test_the_doctor_is_told_of_the_gateway_of_ductile_and_of_the_token(home: House) -> None:
    async with home.living():
        found = await checks(home.link)
    assert [(check.name, check.mark) for check in found.values()] == [
        ("gateway", "ok"),
        ("ductile", "ok"),
        ("ductile token", "ok"),
        ("tools", "ok"),
        ("results", "ok"),
        ("trust", "warning"),  # its tools do not say whose words they bring
        ("retrieval", "ok"),
    ]
    assert home.ductile.url.rpartition(":")[2] in found["ductile"].text


async def test_a_gateway_that_starts_before_its_ductile_says_what_it_waits_for_and_offers_nothing_yet(
    home: House,
) -> None:
    home.ductile.kill()
    key = await home.ask("note", {}, step=1)
    with home.gateway.serving():
        await until(lambda: is_mark(home.link, "gateway", "wrong"), within_s=20)
        assert (await checks(home.link))["ductile"].mark == "wrong"
        assert await no_catalog(home.link)
        home.ductile.start()
        assert (await home.answers())[key].status == "ok"
        await until(lambda: is_mark(home.link, "gateway", "ok"), within_s=10)


async def is_mark(link: NatsLink, name: str, mark: str) -> bool:
    return await mark_of(link, name) == mark


async def test_a_ductile_that_goes_away_is_told_and_that_it_is_back(home: House) -> None:
    async with home.living():
        home.ductile.kill()
        await until(lambda: is_mark(home.link, "ductile", "wrong"), within_s=15)
        assert (await checks(home.link))["tools"].mark == "ok"
        home.ductile.start()
        await until(lambda: is_mark(home.link, "ductile", "ok"), within_s=15)
