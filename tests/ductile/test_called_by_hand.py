"""`ductile-gateway call` where the tools are in a Ductile: the call is made there, and its answer is shown."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from tests.ductile.fake import FakeDuctile
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.served import Gateway


def called(folder: Path, ductile: DuctileUnderTest, *arguments: str) -> subprocess.CompletedProcess[str]:
    way: dict[str, Any] = {"url": ductile.url, "token": ductile.token}
    gateway = Gateway(folder, "nats://127.0.0.1:1", runner="ductile", ductile=way, tools=["probe"])
    return gateway.run("call", *arguments)


async def test_a_call_is_made_once_and_its_answer_shown(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    shown = await asyncio.to_thread(called, tmp_path, ductile, "probe", "look", '{"do": "answer"}')
    assert shown.returncode == 0, shown
    assert shown.stdout.startswith("✓ ok after ")
    assert [(made.plugin, made.command) for made in ductile.executions] == [("probe", "look")]


async def test_while_ductile_is_away_the_call_says_so(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.kill()
    shown = await asyncio.to_thread(called, tmp_path, fake, "probe", "look", "{}")
    assert (shown.returncode, fake.url in shown.stderr) == (69, True), shown
