"""Plugins run by the gateway itself: one process per call, its limits, and what a plugin gets to see."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import AlreadyStarted, ToolOutcome
from ductile_gateway.cli.exits import code_of
from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.settings import load
from groundwork.service.errors import Misconfigured
from tests.gateway.probe_calls import KEY, PLUGINS, alive, lines, local_plugins, probe
from tests.kit.waiting import until


async def outcome_of(tmp_path: Path, command: str, *, seconds: float = 20, **payload: Any) -> ToolOutcome:
    verdict = await local_plugins(tmp_path).run(probe(command, seconds=seconds, **payload))
    assert isinstance(verdict, ToolOutcome), verdict
    return verdict


async def shown(tmp_path: Path, command: str = "show", **payload: Any) -> Any:
    return (await outcome_of(tmp_path, command, **payload)).output


async def test_a_plugin_gets_the_request_of_the_protocol(tmp_path: Path) -> None:
    call = probe("show", word="Grüße")
    verdict = await local_plugins(tmp_path, config={"key": "value"}).run(call)
    assert isinstance(verdict, ToolOutcome)
    request: Any = verdict.output["request"]
    deadline = datetime.fromisoformat(request.pop("deadline_at"))
    assert deadline == call.deadline_at
    assert request == {
        "protocol": 2,
        "job_id": KEY,
        "command": "show",
        "config": {"key": "value"},
        "state": {},
        "payload": {"word": "Grüße"},
    }
    assert verdict.output["leftover"] == ""


async def test_a_plugin_sees_no_more_of_the_environment_than_it_was_given(tmp_path: Path) -> None:
    seen = set((await shown(tmp_path))["environment"])
    # LC_CTYPE is set by the interpreter itself.
    assert seen <= {"PATH", "HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR", "LC_CTYPE", "AGENTIC_CALL"}


@pytest.mark.parametrize("which", ["probe", "probe/run.py"])
async def test_a_plugin_that_everybody_may_write_to_by_now_is_not_run(tmp_path: Path, which: str) -> None:
    folder = shutil.copytree(PLUGINS / "probe", tmp_path / "plugins" / "probe")
    plugins = local_plugins(tmp_path, folder=folder.parent)
    (folder.parent / which).chmod(0o777)
    outcome = await plugins.run(probe("show"))
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.error_class, outcome.retryable) == ("configuration", False)
    assert "everybody may write to it (chmod o-w" in (outcome.message or "")


@pytest.mark.parametrize(
    ("how", "error_class", "retryable"),
    [
        ("garbage", "bad_output", True),
        ("half", "bad_output", True),
        ("silence", "bad_output", True),
        ("wordless", "bad_output", True),
        ("crash", "bad_output", True),
        ("flood", "bad_output", True),
        ("stumble", "transient", True),
        ("refuse", "invalid_arguments", False),
        ("give_up", "configuration", False),
        ("configuration", "configuration", False),
    ],
)
async def test_each_misbehaviour_has_its_class(tmp_path: Path, how: str, error_class: str, retryable: bool) -> None:
    outcome = await outcome_of(tmp_path, "misbehave", how=how)
    assert (outcome.status, outcome.error_class, outcome.retryable) == ("error", error_class, retryable)


@pytest.mark.attack(64)
@pytest.mark.parametrize("config", [{"token": "hunter2-secret"}, {"accounts": [{"token": "hunter2-secret"}]}], ids=str)
async def test_a_crash_is_told_with_the_plugins_last_words_but_not_with_its_secrets(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    verdict = await local_plugins(tmp_path, config=config).run(probe("misbehave", how="crash"))
    assert isinstance(verdict, ToolOutcome)
    assert "ValueError" in (verdict.message or "")
    assert "hunter2" not in (verdict.message or "")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["hang", "deaf", "family"])
async def test_at_its_deadline_a_plugin_is_stopped_with_all_its_processes(tmp_path: Path, how: str) -> None:
    outcome = await outcome_of(tmp_path, "misbehave", how=how, file=str(tmp_path / "on"), seconds=1.5)
    assert (outcome.error_class, outcome.retryable) == ("timeout", True)
    assert (tmp_path / "on").exists()
    await until(lambda: not alive(tmp_path))


async def test_one_call_is_run_once_however_often_it_is_asked_for_at_once(tmp_path: Path) -> None:
    plugins, file = local_plugins(tmp_path), tmp_path / "file"
    call = probe("record", file=str(file))
    results = await asyncio.gather(*(plugins.run(call) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(result, ToolOutcome) for result in results) == 1
    assert sum(isinstance(result, AlreadyStarted) for result in results) == 7
    assert lines(file) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="is of root")
@pytest.mark.parametrize("boundary", ["view", "none"])
def test_a_gateway_that_is_root_does_not_start_where_its_plugins_would_be_root(tmp_path: Path, boundary: str) -> None:
    file = tmp_path / "agentic.yaml"
    file.write_text(json.dumps({"gateway": {"plugins": {"boundary": boundary, "folders": [str(PLUGINS)]}}}))
    with pytest.raises(Misconfigured, match="run_as") as refusal:
        box_of(load(file, {}).plugins, {})
    assert code_of(refusal.value) == 78
    doctors = [sys.executable, "-m", "ductile_gateway", "check", "--settings-only", "--config", str(file)]
    asked = subprocess.run(doctors, capture_output=True, text=True, check=False)
    assert (asked.returncode, "run_as" in asked.stderr) == (78, True)
