"""The embedded server starts and stops with its owner, and survives a kill of either."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured
from tests.kit.bus import a_stream, start_process
from tests.kit.waiting import until

OWNER = """
import asyncio, sys
from pathlib import Path
from agent_service.workbench.embedded_nats import EmbeddedNats

async def own() -> None:
    async with EmbeddedNats(Path(sys.argv[1])) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()

asyncio.run(own())
"""


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def pid_of(folder: Path) -> int:
    """0 while the server writes its file."""
    return int((folder / "nats-server.pid").read_text() or 0)


@pytest.mark.parametrize("folder", ["bus", "grüner 🌱"])
async def test_it_answers_once_started_and_what_it_acknowledged_survives_a_kill_at_the_same_address(
    tmp_path: Path, folder: str
) -> None:
    async with EmbeddedNats(tmp_path / folder) as server, connect(NatsSettings(urls=(url := server.url,))) as link:
        assert (link.server_version.startswith("2."), link.max_payload) == (True, 1024 * 1024)
        await a_stream(link)
        for number in range(20):
            await link.publish("work.a", b"x", msg_id=str(number), headers={})
        server.kill()
        await server.start()
        assert server.url == url
        await until(lambda: link.connected)
        assert (await link.client.jetstream().stream_info("WORK")).state.messages == 20


async def test_a_second_owner_of_the_folder_is_refused_and_the_first_not_disturbed(tmp_path: Path) -> None:
    async with EmbeddedNats(tmp_path):
        pid = pid_of(tmp_path)
        with pytest.raises(Misconfigured, match="is locked by process"):
            await EmbeddedNats(tmp_path).start()
        assert alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="no other kernel tells a child")
async def test_it_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    owner = start_process(sys.executable, "-c", OWNER, tmp_path, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    await asyncio.to_thread(owner.stdout.readline)
    orphan = pid_of(tmp_path)
    assert alive(orphan)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    try:
        await until(lambda: not alive(orphan))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(orphan, signal.SIGKILL)


async def test_a_server_that_dies_at_the_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(Misconfigured, match="sync_interval"):
        await EmbeddedNats(tmp_path, sync_interval="sometimes").start()
    assert time.monotonic() - begin < 5.0
