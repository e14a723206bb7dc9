"""Plugins run by the gateway itself: one process per call, its limits, and what a plugin gets to see."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ductile_gateway.calls.call import AlreadyStarted, NeverStarted, ToolOutcome
from ductile_gateway.cli.exits import code_of
from ductile_gateway.plugins.boundary import Boundary, Files
from ductile_gateway.plugins.box import landlock
from ductile_gateway.plugins.box.limits import MB, Limits
from ductile_gateway.plugins.box.order import User
from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.settings import load
from groundwork.service.errors import Misconfigured
from tests.gateway.parts import a_request, asked_for
from tests.gateway.probe_calls import KEY, PLUGINS, alive, lines, local_plugins, probe
from tests.kit.waiting import until

NO_USER = User(uid=2**32 - 1, gid=2**32 - 1)
"""Nobody can become that."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]


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


async def test_an_outcome_says_when_its_process_began_and_ended_and_its_exit_code(tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)  # the clock of files is coarser
    job = (await outcome_of(tmp_path, "show")).job
    assert job.began_at is not None
    assert job.ended_at is not None
    assert before <= job.began_at <= job.ended_at <= datetime.now(UTC) + timedelta(seconds=1)
    assert job.exit_code == 0


async def test_a_program_is_told_that_the_run_holds_what_strangers_wrote(tmp_path: Path) -> None:
    marked = asked_for(a_request().model_copy(update={"untrusted": True}))
    for command in ("show", "handle"):
        outcome = await local_plugins(tmp_path).run(replace(probe(command, key=f"k-{command}"), asked=marked))
        assert isinstance(outcome, ToolOutcome)
        request: Any = outcome.output["request"]
        assert request["untrusted"] is True
    assert "untrusted" not in (await shown(tmp_path))["request"]


async def test_handle_gets_its_payload_as_the_event_of_an_api_call(tmp_path: Path) -> None:
    request = (await shown(tmp_path, "handle", word="hello"))["request"]
    assert request["event"] == {
        "type": "api.trigger",
        "payload": {"word": "hello"},
        "timestamp": "0001-01-01T00:00:00Z",
    }


async def test_a_plugin_sees_no_more_of_the_environment_than_it_was_given(tmp_path: Path) -> None:
    seen = set((await shown(tmp_path))["environment"])
    # LC_CTYPE is set by the interpreter itself.
    assert seen <= {"PATH", "HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR", "LC_CTYPE", "AGENTIC_CALL"}


def test_the_environment_is_an_allowlist_and_what_is_named() -> None:
    ours = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "ANTHROPIC_API_KEY": "s", "PYTHONPATH": "/x", "PROXY": "p"}
    assert plugin_environment(ours, ["PROXY"]) == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "PROXY": "p"}
    assert plugin_environment(ours, python=Path("/venv/bin/python"))["PATH"] == "/venv/bin:/bin"


def test_a_plugin_works_in_an_empty_folder_that_only_we_can_read(tmp_path: Path) -> None:
    directory = Path(asyncio.run(shown(tmp_path))["directory"])
    assert tmp_path in directory.parents
    assert [*tmp_path.glob("calls/*/work")] == [directory]
    assert [*tmp_path.glob("calls/*/work/*")] == []
    assert stat.S_IMODE((tmp_path / "calls").stat().st_mode) == 0o700


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


async def test_a_plugin_may_say_how_far_it_came_when_it_is_stopped(tmp_path: Path) -> None:
    outcome = await outcome_of(tmp_path, "misbehave", how="confess", seconds=1)
    assert (outcome.message, outcome.retryable) == ("stopped half-way", False)


async def test_a_response_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(tmp_path: Path) -> None:
    size = len((await _raw(tmp_path, Limits()))[0])
    assert (await _raw(tmp_path, Limits(output_mb=size / MB)))[1].status == "ok"
    assert (await _raw(tmp_path, Limits(output_mb=(size - 1) / MB)))[1].error_class == "bad_output"


async def _raw(tmp_path: Path, limits: Limits) -> tuple[bytes, ToolOutcome]:
    plugins = local_plugins(tmp_path, limits=limits)
    outcome = await plugins.run(probe("record", file=str(tmp_path / "file")))
    assert isinstance(outcome, ToolOutcome)
    written = _stdout(tmp_path)
    await plugins.forget(KEY)
    return written, outcome


def _stdout(state_dir: Path) -> bytes:
    (stdout,) = state_dir.glob("calls/*/stdout")
    return stdout.read_bytes()


async def test_a_plugin_that_is_killed_is_told_by_the_signal(tmp_path: Path) -> None:
    outcome = await outcome_of(tmp_path, "misbehave", how="kill_group")
    assert (outcome.error_class, outcome.job.exit_code) == ("bad_output", 137)
    assert "ended by SIGKILL" in (outcome.message or "")


async def test_a_plugin_or_command_that_is_not_there_is_not_run(tmp_path: Path) -> None:
    plugins = local_plugins(tmp_path)
    for call in (probe("nothing"), replace(probe("show"), plugin="nobody")):
        outcome = await plugins.run(call)
        assert isinstance(outcome, ToolOutcome)
        assert (outcome.error_class, outcome.retryable) == ("configuration", False)
    assert plugins.remembered() == frozenset()


async def test_a_call_past_its_deadline_is_not_started(tmp_path: Path) -> None:
    call = replace(probe("record", file=str(tmp_path / "file")), deadline_at=datetime.now(UTC))
    outcome = await local_plugins(tmp_path).run(call)
    assert isinstance(outcome, ToolOutcome)
    assert outcome.error_class == "expired"
    assert lines(tmp_path / "file") == 0


async def test_a_payload_that_is_no_json_is_not_sent(tmp_path: Path) -> None:
    outcome = await outcome_of(tmp_path, "show", number=float("nan"))
    assert outcome.error_class == "invalid_arguments"


async def test_when_no_process_can_be_started_nothing_is_left_and_it_may_be_tried_again(tmp_path: Path) -> None:
    plugins = local_plugins(tmp_path)
    (tmp_path / "calls").rmdir()
    outcome = await plugins.run(probe("record", file=str(tmp_path / "file")))
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.error_class, outcome.retryable) == ("transient", True)
    (tmp_path / "calls").mkdir()
    assert await plugins.resume(probe("record")) == NeverStarted()


async def test_one_call_is_run_once_however_often_it_is_asked_for_at_once(tmp_path: Path) -> None:
    plugins, file = local_plugins(tmp_path), tmp_path / "file"
    call = probe("record", file=str(file))
    results = await asyncio.gather(*(plugins.run(call) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(result, ToolOutcome) for result in results) == 1
    assert sum(isinstance(result, AlreadyStarted) for result in results) == 7
    assert lines(file) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root has a view everywhere")
@pytest.mark.parametrize("files", ["landlock", "view"])
@pytest.mark.parametrize("way", ["link/gateway", "link/../real/gateway"])
async def test_a_link_or_dots_in_the_path_of_the_store_change_nothing(tmp_path: Path, way: str, files: Files) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    boundary = Boundary(files, abi=landlock.abi())
    plugins = local_plugins(tmp_path / way, boundary=boundary, closed=[tmp_path / way])
    outcome = await plugins.run(probe("show"))
    assert isinstance(outcome, ToolOutcome)
    assert outcome.status == "ok", outcome.message
    assert [finding.mark for finding in await plugins.findings()] == ["ok"]


async def test_a_plugin_that_its_box_cannot_begin_has_done_nothing_and_doctor_says_so(tmp_path: Path) -> None:
    plugins, call = local_plugins(tmp_path, boundary=Boundary("none", user=NO_USER)), probe("record")
    outcome = await plugins.run(call)
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.error_class, outcome.retryable) == ("transient", True)
    assert "has done nothing" in str(outcome.message)
    assert await plugins.resume(call) == outcome
    (finding,) = await plugins.findings()
    assert finding.mark == "wrong"
    assert "cannot begin" in finding.text


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


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    plugins, gate = local_plugins(tmp_path), tmp_path / "gate"
    calls = [probe("record", key=f"k{n}", file=str(tmp_path / f"{n}"), wait_for=str(gate)) for n in range(3)]
    running = asyncio.gather(*map(plugins.run, calls))
    await until(lambda: all(lines(tmp_path / f"{n}") for n in range(3)))
    gate.touch()
    assert all(isinstance(outcome, ToolOutcome) and outcome.status == "ok" for outcome in await running)


async def test_a_call_is_remembered_until_it_is_forgotten(tmp_path: Path) -> None:
    plugins, file = local_plugins(tmp_path), tmp_path / "file"
    call = probe("record", file=str(file))
    await plugins.run(call)
    assert plugins.remembered() == {KEY}
    await plugins.forget(KEY)
    await plugins.forget(KEY)
    assert plugins.remembered() == frozenset()
    assert list((tmp_path / "calls").iterdir()) == []


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_it_works_on_either_event_loop(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        plugins = local_plugins(tmp_path)
        shown = await plugins.run(probe("show", key="a"))
        stopped = await plugins.run(probe("misbehave", key="b", how="hang", seconds=0.5))
        again = await plugins.resume(probe("show", key="a"))
        assert isinstance(stopped, ToolOutcome)
        assert (stopped.error_class, shown) == ("timeout", again)

    run(story())
