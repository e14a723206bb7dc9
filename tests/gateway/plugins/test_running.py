"""Plugins run by the gateway: one process per call, its limits, and a gateway that is killed."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import AlreadyStarted, NeverStarted, ToolOutcome, Unknown
from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.plugins.call_record import CallRecords, is_locked
from ductile_gateway.settings import load
from groundwork.service.errors import Misconfigured
from tests.gateway.parts import unrecorded
from tests.gateway.plugins.kit import KEY, PLUGINS, alive, guards, local_plugins, probe, records
from tests.gateway.served import ROOT
from tests.kit.stack import lines
from tests.kit.waiting import until


async def outcome_of(
    tmp_path: Path, command: str, *, config: dict[str, Any] | None = None, seconds: float = 20, **payload: Any
) -> ToolOutcome:
    verdict = await local_plugins(tmp_path, config=config).run(probe(command, seconds=seconds, **payload), unrecorded)
    assert isinstance(verdict, ToolOutcome), verdict
    return verdict


async def test_a_plugin_gets_the_request_of_the_protocol_and_no_more_of_the_environment(tmp_path: Path) -> None:
    shown: Any = (await outcome_of(tmp_path, "show", config={"key": "value"}, word="Grüße")).output
    about = {"protocol": 2, "job_id": KEY, "command": "show", "config": {"key": "value"}, "state": {}}
    due = datetime.fromisoformat(shown["request"].pop("deadline_at"))
    assert shown["request"] == about | {"payload": {"word": "Grüße"}}
    assert (0 < (due - datetime.now(UTC)).total_seconds() < 20, shown["leftover"]) == (True, "")
    # LC_CTYPE is set by the interpreter itself.
    given = {"PATH", "HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR", "LC_CTYPE", "AGENTIC_CALL"}
    assert set(shown["environment"]) <= given


@pytest.mark.parametrize("which", ["probe", "probe/run.py"])
async def test_a_plugin_that_everybody_may_write_to_by_now_is_not_run(tmp_path: Path, which: str) -> None:
    folder = shutil.copytree(PLUGINS / "probe", tmp_path / "plugins" / "probe")
    plugins = local_plugins(tmp_path, folder=folder.parent)
    (folder.parent / which).chmod(0o777)
    outcome = await plugins.run(probe("show"), unrecorded)
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.error_class, outcome.retryable) == ("configuration", False)
    assert "everybody may write to it (chmod o-w" in (outcome.message or "")


@pytest.mark.attack(64)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"token": "hunter2-secret"},
        {"accounts": [{"token": "hunter2-secret"}]},
        {"login": "somebody\nhunter2-secret\n"},
    ],
    ids=str,
)
async def test_a_crash_is_told_by_its_exception_first_and_without_its_secrets_also_after_they_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    monkeypatch.setenv("PROBE_TOKEN", "hunter2-secret")
    named = () if config else ("PROBE_TOKEN",)
    call = probe("misbehave", how="crash")
    ran = await local_plugins(tmp_path, config=config, environment=named).run(call, unrecorded)
    for outcome in (ran, await local_plugins(tmp_path, environment=named).resume(call)):
        assert isinstance(outcome, ToolOutcome)
        assert (outcome.message or "").startswith("ValueError: the key is")
        assert "hunter2" not in (outcome.message or "") + outcome.job.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["hang", "deaf", "family"])
async def test_at_its_deadline_a_plugin_is_stopped_with_all_its_processes(tmp_path: Path, how: str) -> None:
    outcome = await outcome_of(tmp_path, "misbehave", how=how, file=str(tmp_path / "on"), seconds=3)
    assert (outcome.error_class, outcome.retryable) == ("timeout", True)
    assert (tmp_path / "on").exists()
    await until(lambda: not alive(tmp_path))


async def test_one_call_is_run_once_however_often_it_is_asked_for_at_once_and_its_record_goes_once_it_is_stored(
    tmp_path: Path,
) -> None:
    plugins, file = local_plugins(tmp_path), tmp_path / "file"
    call = probe("record", file=str(file))
    results = await asyncio.gather(*(plugins.run(call, unrecorded) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(result, ToolOutcome) for result in results) == 1
    assert sum(isinstance(result, AlreadyStarted) for result in results) == 7
    assert lines(file) == 1
    await plugins.forget(call.key)
    assert not records(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="is of root")
@pytest.mark.parametrize("boundary", ["view", "none"])
def test_a_gateway_that_is_root_does_not_start_where_its_plugins_would_be_root(tmp_path: Path, boundary: str) -> None:
    file = tmp_path / "agentic.yaml"
    file.write_text(json.dumps({"gateway": {"plugins": {"boundary": boundary, "folders": [str(PLUGINS)]}}}))
    with pytest.raises(Misconfigured, match="run_as"):
        box_of(load(file, {}).plugins)


async def test_a_request_that_does_not_fit_on_the_disk_is_no_start_and_says_why(tmp_path: Path) -> None:
    plugins, (soft, hard) = local_plugins(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        outcome = await plugins.run(call := probe("show", word="x" * 200_000), unrecorded)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.error_class, "the disk is full" in (outcome.message or "")) == ("transient", True)
    assert await plugins.resume(call) == NeverStarted()


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 6, 12, 40])
def test_killed_at_any_moment_the_plugin_runs_exactly_once_in_the_end(tmp_path: Path, milliseconds: int) -> None:
    file = tmp_path / "file"
    payload = json.dumps({"file": str(file)})
    command = [sys.executable, "-m", "tests.gateway.plugins.kit", str(tmp_path), "record", payload]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout
        assert gateway.stdout.readline() == b"ready\n"
        time.sleep(milliseconds / 1000)  # not a wait for anything: the moment of death is what varies
        gateway.kill()
    call = probe("record", file=str(file))
    verdict = asyncio.run(local_plugins(tmp_path).resume(call))
    if verdict == NeverStarted():
        assert lines(file) == 0
        verdict = asyncio.run(local_plugins(tmp_path).run(call, unrecorded))
    assert (verdict, lines(file)) == (ToolOutcome("ok", text="recorded"), 1)


async def test_a_guard_that_was_stopped_until_the_deadline_begins_nothing_afterwards(tmp_path: Path) -> None:
    plugins, file = local_plugins(tmp_path), tmp_path / "file"
    await plugins.run(probe("show"), unrecorded)
    (guard,) = guards(tmp_path)
    os.kill(guard, signal.SIGSTOP)
    outcome = await plugins.run(probe("record", step=2, seconds=0.2, file=str(file)), unrecorded)
    os.kill(guard, signal.SIGCONT)
    assert isinstance(outcome, ToolOutcome)
    assert outcome.error_class == "timeout"
    await until(lambda: not any(is_locked(record.path) for record in records(tmp_path)))
    assert not file.exists()


async def test_a_guard_that_is_killed_takes_its_plugin_along_and_leaves_an_unknown_end(tmp_path: Path) -> None:
    plugins, on = local_plugins(tmp_path), tmp_path / "on"
    call = probe("misbehave", how="family", file=str(on))
    running = asyncio.create_task(plugins.run(call, unrecorded))
    await until(on.exists)
    os.kill(guards(tmp_path)[0], signal.SIGKILL)
    assert isinstance(await running, Unknown)
    assert not alive(tmp_path)
    assert isinstance(await plugins.resume(call), Unknown)


@pytest.mark.parametrize(
    ("lost", "of_disk_alone"),
    [(b"exit ", False), (b"began ", False), (b"request ", False), (b"recorded", False), (b"request ", True)],
)
async def test_after_a_power_cut_what_is_missing_proves_nothing(
    tmp_path: Path, lost: bytes, of_disk_alone: bool
) -> None:
    call = probe("record", file=str(tmp_path / "file"))
    await local_plugins(tmp_path).run(call, unrecorded)
    (record,) = records(tmp_path)
    content = record.path.read_bytes()
    kept = content[: content.index(lost)]
    rest = content[len(kept) :].replace(lost, bytes(len(lost))) if lost == b"recorded" else b""
    record.path.write_bytes(kept + rest)
    if not of_disk_alone:
        record.path.parent.rename(tmp_path / "calls" / "the boot before")
    plugins = local_plugins(tmp_path)
    assert isinstance(await plugins.resume(call), Unknown)
    with pytest.raises(AlreadyStarted):
        await plugins.run(call, unrecorded)


def test_records_are_named_by_their_real_path_behind_a_link_and_dots(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    records = CallRecords(tmp_path / "link" / ".." / "link" / "calls", boot_id="b")
    assert records.of("key").path.parent == tmp_path / "disk" / "calls" / "b"
