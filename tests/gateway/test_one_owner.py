"""A bus has one gateway: a second is told so, one that takes over fences the first, and no call runs twice."""

import asyncio
import os
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.bus.prerequisites import ROLE
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.leases.lease import look
from groundwork.nats.link import NatsLink
from tests.gateway.on_nats import a_bus, all_acknowledged, results, send
from tests.gateway.parts import a_request
from tests.gateway.served import Gateway
from tests.kit.waiting import until

LEASE_S = 1


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await a_bus(link, ack_wait=5)
    return link


def a_gateway(folder: Path, server: EmbeddedNats) -> Gateway:
    folder.mkdir()
    return Gateway(folder, server.url, marks=folder.parent / "marks", lease_s=LEASE_S)


def a_record(folder: Path, *, step: int = 1) -> Any:
    payload = {"file": str(folder / "marks" / "ran"), "wait_for": str(folder / "marks" / "go")}
    return a_request("record", payload, tool="probe", step=step)


def runs(folder: Path) -> int:
    return len((folder / "marks" / "ran").read_text().splitlines()) if (folder / "marks" / "ran").exists() else 0


async def ready(gateway: Gateway, times: int = 1) -> None:
    await until(lambda: gateway.starts() == times, within_s=30)


async def has_expired(link: NatsLink) -> bool:
    record = await look(link, ROLE)
    return record is not None and record.free


async def test_a_second_gateway_with_another_store_is_told_who_owns_the_bus(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    first, second = a_gateway(tmp_path / "one", nats_server), a_gateway(tmp_path / "two", nats_server)
    (tmp_path / "marks" / "go").touch()
    with first.serving() as process:
        await ready(first)
        refused = await asyncio.to_thread(second.run, "serve")
        for step in (1, 2, 3):
            await send(bus, a_record(tmp_path, step=step), "probe")
        await until(lambda: all_acknowledged(bus), within_s=30)
    assert refused.returncode == 78
    for fact in (f"process {process.pid} on {socket.gethostname()}", str(tmp_path / "one"), "serve --take-over"):
        assert fact in refused.stderr
    assert "Traceback" not in refused.stderr
    assert ([result.status for result in await results(bus)], runs(tmp_path)) == (["ok"] * 3, 3)


async def test_a_gateway_of_the_same_store_takes_over_in_the_middle_of_a_call_which_runs_once(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    gateway = a_gateway(tmp_path / "one", nats_server)
    await send(bus, a_record(tmp_path), "probe")
    with gateway.serving() as blue:
        await until(lambda: runs(tmp_path) == 1, within_s=30)
        with gateway.serving("--take-over"):
            assert await asyncio.to_thread(blue.wait, 20) == 78
            await ready(gateway, 2)
            (tmp_path / "marks" / "go").touch()
            await until(lambda: all_acknowledged(bus), within_s=30)
    assert ([result.status for result in await results(bus)], runs(tmp_path)) == (["ok"], 1)


async def test_a_gateway_that_was_stopped_for_longer_than_its_lease_starts_nothing_when_it_wakes_up(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    first, second = a_gateway(tmp_path / "one", nats_server), a_gateway(tmp_path / "two", nats_server)
    (tmp_path / "marks" / "go").touch()
    with first.serving() as sleeper:
        await ready(first)
        os.kill(sleeper.pid, signal.SIGSTOP)
        await until(partial(has_expired, bus))
        for step in (1, 2, 3):  # it had asked for them before
            await send(bus, a_record(tmp_path, step=step), "probe")
        with second.serving():
            await ready(second)
            os.kill(sleeper.pid, signal.SIGCONT)
            assert await asyncio.to_thread(sleeper.wait, 20) == 78
            await until(lambda: all_acknowledged(bus), within_s=30)
    assert str(tmp_path / "two") in first.log.read_text()
    assert (sorted(result.step for result in await results(bus)), runs(tmp_path)) == ([1, 2, 3], 3)


async def test_a_write_that_a_stopped_gateway_had_in_hand_is_in_doubt_and_not_run_again(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    first, second = a_gateway(tmp_path / "one", nats_server), a_gateway(tmp_path / "two", nats_server)
    await send(bus, a_record(tmp_path), "probe")
    with first.serving() as sleeper:
        await until(lambda: runs(tmp_path) == 1, within_s=30)
        os.kill(sleeper.pid, signal.SIGSTOP)
        with second.serving():
            await until(lambda: all_acknowledged(bus), within_s=30)
            (tmp_path / "marks" / "go").touch()
            os.kill(sleeper.pid, signal.SIGCONT)
            assert await asyncio.to_thread(sleeper.wait, 20) == 78
    (result,) = await results(bus)
    assert result.error is not None
    assert (result.error.error_class, runs(tmp_path)) == ("in_doubt", 1)
    assert str(tmp_path / "one") in result.error.message
