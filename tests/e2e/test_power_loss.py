"""A bus that syncs every 100 ms forgets what it acknowledged last when the power fails: no run is lost by it.

The power cut is simulated: NATS is stopped for a moment while its files are copied, goes on, is killed, and finds the
older copy in place of its files. Everything that it acknowledged in between is gone, more than one sync interval.
"""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from agent_service.workbench.dev import DevStack
from groundwork.nats import link as nats_link
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from tests.e2e.bodies import lines, on_the_bus, recording, running, to_the_end, wake
from tests.kit.waiting import until

RUNS, STEPS, LOST_S = 12, 3, 0.4


def _nats_pid(made: DevStack) -> int:
    return int((made.options.folder / "nats" / "nats-server.pid").read_text())


def _copy(made: DevStack, place: Path) -> None:
    """The bus's files as they are at one instant."""
    os.kill(_nats_pid(made), signal.SIGSTOP)
    try:
        shutil.copytree(made.options.folder / "nats" / "store", place)
    finally:
        os.kill(_nats_pid(made), signal.SIGCONT)


async def _lose_power(made: DevStack, copy: Path, *, services: bool) -> None:
    made.nats.kill()
    if services:
        made.agent.kill()
        made.gateway.kill()
    store = made.options.folder / "nats" / "store"
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    await made.nats.start()


async def _newest(made: DevStack) -> int:
    link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)))
    try:
        return int((await link.jetstream.stream_info(subjects.STREAM_RESULTS)).state.last_seq)
    finally:
        await link.close()


def _slow(script: dict[str, Any]) -> dict[str, Any]:
    for rule in script["rules"]:
        rule["wait_s"] = 0.3
    return script


@pytest.mark.parametrize("services", [True, False], ids=["everything loses power", "only the bus does"])
async def test_what_the_bus_forgot_is_said_again_and_every_run_completes(tmp_path: Path, services: bool) -> None:
    file = tmp_path / "marks" / "lines"
    script = _slow(recording(file, steps=STEPS))
    async with running(tmp_path / "stack", script, sync_interval="100ms") as made:
        run_ids = await asyncio.gather(*(wake(made, wake_id=f"w{n}") for n in range(RUNS)))
        await until(lambda: lines(file) >= RUNS)
        _copy(made, tmp_path / "copy")
        remembered = await _newest(made)
        await asyncio.sleep(LOST_S)
        acknowledged = await _newest(made)
        await _lose_power(made, tmp_path / "copy", services=services)
        ended = [await to_the_end(made, run_id) for run_id in run_ids]
        await until(lambda: lines(file) == RUNS * STEPS)
        completed = await on_the_bus(made, subjects.COMPLETED)
    assert remembered < acknowledged, "the bus forgot nothing: the test shows nothing"
    assert [run["state"] for run in ended] == ["done"] * RUNS
    assert lines(file) == RUNS * STEPS
    assert sorted(event["run_id"] for event in completed) == sorted(run_ids)
