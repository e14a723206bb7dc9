"""Status of a gateway's Ductiles. An unavailable one delays no calls of the others."""

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agent_service.cli.doctor.tools import gateway as doctor
from agent_service.settings import AgentSettings
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.catalog import Catalog
from schemas.status import Finding
from tests.ductile.fake import FakeDuctile
from tests.ductile.serving import Served, served
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.served import ending
from tests.kit.waiting import until


@pytest.fixture
async def home(ductile: DuctileUnderTest, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, ductile) as opened:
        yield opened


async def checks(link: NatsLink) -> dict[str, Finding]:
    return {check.name: check async for check in doctor(link, AgentSettings())}


def marked(link: NatsLink, name: str, mark: str) -> Callable[[], Coroutine[Any, Any, bool]]:
    async def look() -> bool:
        found = (await checks(link)).get(name)
        return found is not None and found.mark == mark

    return look


async def catalog(link: NatsLink) -> list[str] | None:
    """Names of the tools on offer; None without an answer."""
    try:
        answer = await link.request(subjects.CATALOG, b"", timeouts_s=(1,))
    except TryAgain:
        return None
    return [tool.name for tool in Catalog.model_validate_json(answer).tools]


async def test_a_gateway_says_what_it_waits_for_and_offers_nothing_until_its_ductile_is_there(home: Served) -> None:
    home.ductile.kill()
    key = await home.ask("note", {}, step=1)
    with home.gateway.serving():
        await until(marked(home.link, "gateway", "wrong"), within_s=20)
        assert (await checks(home.link))["ductile"].mark == "wrong"
        assert await catalog(home.link) is None
        home.ductile.start()
        assert (await home.answers())[key].status == "ok"
        await until(marked(home.link, "gateway", "ok"), within_s=10)
        found = await checks(home.link)
        well = ("gateway", "ductile", "ductile token", "tools", "results")
        assert [name for name in well if found[name].mark != "ok"] == []
        assert found["trust"].mark == "warning", "its tools do not say whose words they bring"
        assert home.ductile.url.rpartition(":")[2] in found["ductile"].text


async def test_one_of_several_that_is_away_holds_up_no_call_of_the_others_and_its_own_wait_for_it(
    fake: FakeDuctile, ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    async def is_offered() -> bool:
        return await catalog(both.link) == ["probe", "work_probe"]

    async with served(tmp_path, fake, beside={"work": ductile}, refresh_s=1) as both, both.living():
        await until(is_offered)
        ductile.kill()
        await both.ask("note", {"where": "there"}, step=1, tool="work_probe")
        await both.ask("note", {"where": "here"}, step=2)
        await until(lambda: both.has_results(1))
        assert [result.tool for result in await both.results()] == ["probe"]
        await until(marked(both.link, "ductile work", "wrong"), within_s=15)
        found = await checks(both.link)
        assert [found[name].mark for name in ("ductile", "ductile token", "tools")] == ["ok"] * 3
        assert "gateway.ductiles.work.url" in found["ductile work"].remedy
        ductile.start()
        assert {ending(result) for result in (await both.answers()).values()} == {"ok"}
        await until(marked(both.link, "ductile work token", "ok"), within_s=15)
    assert [execution.payload["where"] for execution in both.ductile.executions] == ["here"]
    assert [execution.payload["where"] for execution in ductile.executions] == ["there"]
