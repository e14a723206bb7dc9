"""Several Ductiles behind one gateway: each call is made in the one that its tool names, and one that is away holds up
none of the others' calls."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ductile_gateway.settings import GatewaySettings
from schemas import subjects
from schemas.catalog import Catalog
from tests.ductile.fake import FakeDuctile
from tests.ductile.gateway_house import House, house
from tests.ductile.test_gateway_status import checks, is_mark
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.served import Gateway
from tests.kit.waiting import until


@pytest.fixture
async def both(fake: FakeDuctile, work: DuctileUnderTest, tmp_path: Path) -> AsyncIterator[House]:
    """A gateway before a Ductile without a name, and one named `work`."""
    async with house(tmp_path, fake, beside={"work": work}, refresh_s=1) as opened:
        yield opened


def settings_of(**gateway: object) -> GatewaySettings:
    return GatewaySettings.model_validate({"runner": "ductile"} | gateway)


def way_to(ductile: DuctileUnderTest) -> dict[str, str]:
    return {"url": ductile.url, "token": ductile.token}


async def offered(home: House) -> list[str]:
    answer = await home.link.request(subjects.CATALOG, b"", timeout_s=5)
    return [tool.name for tool in Catalog.model_validate_json(answer).tools]


async def test_each_call_is_made_in_the_ductile_that_its_tool_names(both: House, work: DuctileUnderTest) -> None:
    here = await both.ask("note", {"where": "here"}, step=1)
    there = await both.ask("note", {"where": "there"}, step=2, tool="work_probe")
    async with both.living():
        answers = await both.answers()
        assert await offered(both) == ["probe", "work_probe"]
    assert {answers[key].status for key in (here, there)} == {"ok"}
    assert [execution.payload["where"] for execution in both.ductile.executions] == ["here"]
    assert [execution.payload["where"] for execution in work.executions] == ["there"]


async def test_one_that_is_away_holds_up_no_call_of_the_others_and_its_own_wait_for_it(
    both: House, work: DuctileUnderTest
) -> None:
    async with both.living():
        work.kill()
        there = await both.ask("note", {}, step=1, tool="work_probe")
        here = await both.ask("note", {}, step=2)
        await until(lambda: both.has_results(1))
        assert [result.tool for result in await both.results()] == ["probe"]
        await until(lambda: is_mark(both.link, "ductile work", "wrong"), within_s=15)
        found = await checks(both.link)
        assert (found["ductile"].mark, found["ductile token"].mark) == ("ok", "ok")
        assert "gateway.ductiles.work.url" in found["ductile work"].remedy
        work.start()
        answers = await both.answers()
        await until(lambda: is_mark(both.link, "ductile work token", "ok"), within_s=15)
    assert {answers[key].status for key in (here, there)} == {"ok"}


def test_check_tells_of_each_and_that_one_is_away(fake: FakeDuctile, newer: FakeDuctile, tmp_path: Path) -> None:
    ways = {"home": way_to(fake), "work": way_to(newer)}
    tools = {"home_probe": None, "work_notes": {"plugin": "probe"}}
    gateway = Gateway(tmp_path, "nats://127.0.0.1:1", runner="ductile", ductiles=ways, tools=tools)
    told = gateway.run("check")
    assert told.returncode == 0, told
    assert "tool work_notes: plugin work_probe" in told.stdout
    assert ("ductile home: " in told.stdout, "ductile work token: " in told.stdout) == (True, True)
    newer.kill()
    told = gateway.run("check")
    assert (told.returncode, "tool home_probe" in told.stdout, "gateway.ductiles.work: " in told.stdout) == (
        69,
        True,
        True,
    )
    called = gateway.run("call", "home_probe", "look", "{}")
    assert called.returncode == 0, called


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"probe": None}, "tool probe has to begin with the name of its Ductile: home_"),
        ({"other_probe": None}, "tool other_probe has to begin"),
        ({"home_p": {"plugin": "p" * 60}}, "too long together"),
    ],
)
def test_a_tool_of_no_ductile_is_refused(tools: dict[str, object], said: str) -> None:
    way = {"url": "http://127.0.0.1:1", "token": "a-token-of-home"}
    with pytest.raises(ValueError, match=said):
        settings_of(ductiles={"home": way}, tools=tools)
