"""A plugin folder answers the same whether the gateway runs it itself or a real Ductile does."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import ToolCall, ToolOutcome, Verdict
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.discovery import discover_tools
from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.tools.catalog import ToolChoice
from tests.ductile.conftest import NO_BINARY
from tests.ductile.real import RealDuctile
from tests.ductile.runner_house import a_call, gateway, outcome, settings_for
from tests.plugins.asking import SHIPPED

TEXT = {"path": "artifacts/a.txt", "content_type": "text/plain", "text": "One day it rained. We stayed in and read."}
BINARY = os.environ.get("DUCTILE_BIN", "")


async def here(call: ToolCall, folder: Path) -> Verdict:
    environment = plugin_environment(os.environ, (), python=Path(sys.executable))
    plugins = discover_plugins([SHIPPED], {})
    return await LocalPlugins(plugins, state_dir=folder, environment=environment).run(call)


async def there(call: ToolCall, folder: Path) -> ToolOutcome:
    await asyncio.to_thread(folder.mkdir)
    ductile = await asyncio.to_thread(RealDuctile, BINARY, folder)
    try:
        settings = settings_for(ductile)
        async with open_api(settings) as api:
            tools = await discover_tools(api, {call.plugin: ToolChoice()}, settings)
        async with gateway(ductile, folder, tools=tools) as runner:
            return outcome(await runner.run(call))
    finally:
        ductile.close()


@pytest.mark.ductile
@pytest.mark.skipif(not BINARY, reason=NO_BINARY)
@pytest.mark.parametrize("payload", [{"artifact": TEXT}, {"artifact": {"path": "artifacts/b.bin"}}])
async def test_a_plugin_has_the_same_outcome_here_and_in_ductile(tmp_path: Path, payload: dict[str, Any]) -> None:
    call = a_call("handle", plugin="text-report", **payload)
    local = outcome(await here(call, tmp_path))
    assert await there(call, tmp_path / "ductile") == local
    assert (local.status == "ok") == (payload["artifact"] is TEXT)
