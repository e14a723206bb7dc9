"""Local commands beside a running `agentic dev`."""

import re
import stat
from pathlib import Path
from typing import Any

import pytest

from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured
from tests.cli.dev_stack import Dev
from tests.cli.invoke import running_with


def test_a_start_warns_of_nothing(dev: Dev) -> None:
    logs = [file.read_text() for file in (dev.folder / "logs").glob("*.log")]
    assert [line for log in logs for line in log.splitlines() if '"level":"WARNING"' in line] == []
    assert len(logs) == 2


def test_doctor_finds_nothing_wrong(dev: Dev) -> None:
    called = dev("doctor")
    assert called.code == 0, called.out
    assert "✗" not in called.out
    found = {check["name"] for check in dev("doctor", "--json").document["checks"]}
    assert found >= {"configuration", "store", "database", "nats", "streams", "permissions", "clock"}
    assert found >= {"gateway", "tools", "model", "http"}


def test_a_second_dev_on_the_same_port_says_so_at_once(dev: Dev, tmp_path: Path) -> None:
    port = dev.url.rpartition(":")[2]
    called = dev("dev", "--dir", tmp_path, "--http-port", port)
    assert called.code == 78
    assert f"port {port}" in called.err


async def test_nobody_is_let_in_to_its_bus_without_its_login(dev: Dev) -> None:
    address = str(dev.facts["nats"]).rpartition("@")[2]
    async with connect(NatsSettings(urls=(dev.facts["nats"],))):
        for stranger in (f"nats://{address}", f"nats://agentic:not-the-password@{address}"):
            with pytest.raises(Misconfigured, match="login is refused"):
                await connect(NatsSettings(urls=(stranger,))).__aenter__()


@pytest.mark.attack(60, 97)
def test_its_login_is_in_files_of_its_user_alone_and_in_no_log_and_no_command_line(
    dev: Dev, done: dict[str, Any]
) -> None:
    assert done["state"] == "done"
    (password,) = re.findall(r"^nats://agentic:(.{20,})@127\.0\.0\.1:\d+$", dev.facts["nats"])
    held = [path for path in dev.folder.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    assert {path.name for path in held} == {"agentic.yaml", "nats-url", "nats-server.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in held} == {0o600}
    assert running_with(password) == {}
