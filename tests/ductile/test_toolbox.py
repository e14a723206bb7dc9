"""The tools of a Ductile are asked for again and again: what is new is on offer soon, what cannot be asked stays."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import find_tools, keep_fresh, tools_at_last
from tests.ductile.fake import FakeDuctile
from tests.ductile.fake.wire import Answer
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.served import Gateway
from tests.kit.waiting import until

NEWS: dict[str, Any] = {
    "manifest_spec": "ductile.plugin",
    "manifest_version": 1,
    "name": "news",
    "version": "1.0.0",
    "protocol": 2,
    "entrypoint": "run.py",
    "description": "Tells what is new.",
    "commands": [{"name": "tell", "type": "read", "input_schema": {"type": "object"}}],
}


def settings_for(ductile: DuctileUnderTest, *tools: str) -> GatewaySettings:
    way = {"url": ductile.url, "token": ductile.token}
    return GatewaySettings.model_validate({"runner": "ductile", "ductile": way, "tools": list(tools)})


@asynccontextmanager
async def fresh(ductile: FakeDuctile, *tools: str) -> AsyncIterator[tuple[Offers, list[Mapping[str, DuctileTools]]]]:
    """What is on offer, kept so; and what the runner is told."""
    settings, told = settings_for(ductile, *tools), list[Mapping[str, DuctileTools]]()
    offers, found = Offers(), await tools_at_last(settings)
    offers.replace(found.catalog, found.problems)
    task = asyncio.create_task(keep_fresh(settings, offers, told.append, every_s=0.02))
    try:
        yield offers, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(offers: Offers) -> list[str]:
    return [offer.name for offer in offers.catalog.tools]


async def test_a_chosen_tool_that_ductile_does_not_have_is_complained_of(ductile: DuctileUnderTest) -> None:
    found = await find_tools(settings_for(ductile, "probe", "news"))
    assert [offer.name for offer in found.catalog.tools] == ["probe"]
    assert any("there is no plugin news" in problem for problem in found.problems)


async def test_a_plugin_that_comes_later_is_on_offer_soon(fake: FakeDuctile) -> None:
    async with fresh(fake, "probe", "news") as (offers, told):
        assert names(offers) == ["probe"]
        fake.plugin(NEWS)
        await until(lambda: names(offers) == ["news", "probe"])
        assert "news" in told[-1][""].manifests
        assert not offers.problems


async def test_while_ductile_is_away_the_tools_stay_as_they_are(
    fake: FakeDuctile, caplog: pytest.LogCaptureFixture
) -> None:
    async with fresh(fake, "probe") as (offers, _):
        fake.kill()
        with caplog.at_level(logging.WARNING):
            await until(lambda: "the tools stay as they are" in caplog.messages)
        assert names(offers) == ["probe"]


@pytest.mark.parametrize(
    ("token", "tools", "code", "said"),
    [
        ("gateway", {"probe": None}, 0, "tool probe: plugin probe, handle (write), look (read), note (write)"),
        ("reader", {"probe": None}, 0, "ductile token: the token does not open calls that write -> give it plugin:rw"),
        ("gateway", {"probe": None, "news": None}, 78, "problem: tool news: there is no plugin news"),
        (
            "gateway",
            {"probe": {"output": "trusted"}},
            0,
            "a text of probe may ask for more in the tool's name",
        ),
        ("gateway", {"probe": {"commands": ["look", "sing"]}}, 78, "has no command sing"),
        ("everything", {"probe": None}, 78, "make one with plugin:ro"),
        ("caller", {"probe": None}, 78, "does not open jobs"),
    ],
)
def test_check_says_what_there_is_and_what_is_wrong_and_starts_nothing(
    fake: FakeDuctile, tmp_path: Path, token: str, tools: dict[str, Any], code: int, said: str
) -> None:
    way = {"url": fake.url, "token": fake.tokens[token]}
    checked = Gateway(tmp_path, "nats://127.0.0.1:1", runner="ductile", ductile=way, tools=tools).run("check")
    assert (checked.returncode, said in checked.stdout) == (code, True), checked
    assert not fake.executions


@pytest.mark.parametrize(("away", "said"), [(True, "nothing answers at {url}"), (False, "what answers at {url} is no")])
def test_check_of_a_ductile_that_is_away_says_where_it_was_looked_for(
    fake: FakeDuctile, tmp_path: Path, away: bool, said: str
) -> None:
    if away:
        fake.kill()
    else:
        fake.faults.proxied = Answer(404, b"<html>another program</html>", "text/html")
    way = {"url": fake.url, "token": fake.token}
    checked = Gateway(tmp_path, "nats://127.0.0.1:1", runner="ductile", ductile=way, tools=["probe"]).run("check")
    assert (checked.returncode, said.format(url=fake.url) in checked.stdout) == (69, True), checked
