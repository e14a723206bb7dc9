"""The gateway is killed at any point and started again: the plugin has run exactly once, or the end is unknown."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import NeverStarted, ToolCall, ToolOutcome, Unknown, Verdict
from tests.gateway.probe_calls import KEY, alive, guard_of, lines, local_plugins, probe
from tests.kit.waiting import until, wait_until

DONE = ToolOutcome("ok", text="recorded")
PROJECT = Path(__file__).parents[2]


class Gateway:
    """A gateway that runs one call in a process of its own."""

    def __init__(self, state_dir: Path, command: str, *, stop: str = "nowhere", **payload: Any) -> None:
        arguments = [str(state_dir), stop, command, json.dumps(payload)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.gateway_process", *arguments], cwd=PROJECT, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def killed(self) -> int:
        """Kill -9 unless it is dead already; its exit code."""
        self._process.kill()
        self._process.communicate()
        return self._process.returncode


def resumed(state_dir: Path, call: ToolCall) -> Verdict:
    """The verdict of a gateway that was started again."""
    return asyncio.run(local_plugins(state_dir).resume(call))


def test_a_plugin_that_outlives_the_gateway_is_waited_for_and_not_run_again(tmp_path: Path) -> None:
    file, gate = tmp_path / "file", tmp_path / "gate"
    gateway = Gateway(tmp_path, "record", file=str(file), wait_for=str(gate))
    wait_until(lambda: lines(file))
    assert gateway.killed() == -signal.SIGKILL

    async def restart() -> Verdict:
        resuming = asyncio.create_task(local_plugins(tmp_path).resume(probe("record")))
        await asyncio.sleep(0.1)
        assert not resuming.done()
        gate.touch()
        return await resuming

    assert asyncio.run(restart()) == DONE
    assert lines(file) == 1


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 4, 6, 8, 12, 20, 40])
def test_killed_at_any_moment_the_plugin_runs_exactly_once_in_the_end(tmp_path: Path, milliseconds: int) -> None:
    file = tmp_path / "file"
    gateway = Gateway(tmp_path, "record", file=str(file))
    # Not a wait for anything: the moment of death is what varies.
    time.sleep(milliseconds / 1000)
    gateway.killed()
    call = probe("record", file=str(file))
    verdict = resumed(tmp_path, call)
    if verdict == NeverStarted():
        assert lines(file) == 0
        verdict = asyncio.run(local_plugins(tmp_path).run(call))
    assert verdict == DONE
    assert lines(file) == 1


def test_when_plugin_and_gateway_are_killed_together_the_end_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "file"
    gateway = Gateway(tmp_path, "record", file=str(file), wait_for=str(tmp_path / "never"))
    wait_until(lambda: lines(file))
    gateway.killed()
    os.kill(guard_of(tmp_path), signal.SIGKILL)
    assert isinstance(resumed(tmp_path, probe("record")), Unknown)
    assert lines(file) == 1


async def test_a_guard_that_is_killed_takes_its_plugin_along_and_leaves_an_unknown_end(tmp_path: Path) -> None:
    plugins, on = local_plugins(tmp_path), tmp_path / "on"
    call = probe("misbehave", how="family", file=str(on))
    running = asyncio.create_task(plugins.run(call))
    await until(on.exists)
    os.kill(guard_of(tmp_path), signal.SIGKILL)
    assert isinstance(await running, Unknown)
    assert not alive(tmp_path)
    assert isinstance(await plugins.resume(call), Unknown)


def _restart_machine(state_dir: Path) -> None:
    (origin,) = state_dir.glob("calls/*/origin.json")
    origin.write_text(json.dumps({"key": KEY, "boot_id": "before the power cut"}))


@pytest.mark.parametrize(
    "lost", [("exit",), ("exit", "began"), ("stdout",), ("exit", "began", "stdout", "origin.json", "lock")]
)
def test_after_a_power_cut_what_is_missing_proves_nothing(tmp_path: Path, lost: tuple[str, ...]) -> None:
    call = probe("record", file=str(tmp_path / "file"))
    asyncio.run(local_plugins(tmp_path).run(call))
    _restart_machine(tmp_path)
    _lose(tmp_path, *lost)
    assert isinstance(resumed(tmp_path, call), Unknown)


def _lose(state_dir: Path, *names: str) -> None:
    for name in names:
        (path,) = state_dir.glob(f"calls/*/{name}")
        path.unlink()
