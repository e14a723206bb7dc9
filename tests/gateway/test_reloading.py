"""Plugin folders that change while the gateway runs: what is on offer follows them, and calls go by it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ductile_gateway.authoring.making import Language, make
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.reloading import follow_folders
from tests.kit.waiting import until


@asynccontextmanager
async def followed(folder: Path) -> AsyncIterator[Offers]:
    settings = GatewaySettings.model_validate({"plugins": {"folders": [str(folder)]}})
    offers, plugins = Offers(), dict[str, object]()
    task = asyncio.create_task(follow_folders(settings, offers, plugins.update))
    try:
        await until(lambda: offers.catalog.revision)
        yield offers
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(offers: Offers) -> list[str]:
    return [offer.name for offer in offers.catalog.tools]


def rewritten(manifest: Path, before: str, after: str) -> None:
    manifest.write_text(manifest.read_text().replace(before, after))


async def test_a_tool_that_is_new_changed_or_gone_is_so_on_offer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = make("one", Language.PYTHON, tmp_path)
    with caplog.at_level(logging.INFO):
        async with followed(tmp_path) as offers:
            make("two", Language.BASH, tmp_path)
            await until(lambda: names(offers) == ["one", "two"])
            rewritten(one / "manifest.yaml", "type: read", "type: write")
            await until(lambda: offers.catalog.tools[0].commands[0].tier == "write")
            one.rename(tmp_path.parent / "elsewhere")
            await until(lambda: names(offers) == ["two"])
    changes = [record.__dict__ for record in caplog.records if record.msg == "other tools are on offer"]
    assert [change["new"] + change["changed"] + change["gone"] for change in changes] == [
        ["one"],
        ["two"],
        ["one"],
        ["one"],
    ]
