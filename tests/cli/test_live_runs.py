"""Commands on runs that work, wait, are followed and killed, and local commands, beside a running `agentic dev`; and
`agentic demo`, which leaves nothing running."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured
from tests.cli.invoke import COMMAND, ROOT, Dev, clean, interrupt, running_with, started
from tests.kit.waiting import wait_until


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


SOME_RUN = "run_00000000000000000000000000"
FULL = Path("/dev/full")


@pytest.fixture
def staying(dev: Dev) -> Iterator[str]:
    """A run that waits for its model; cancelled at the end."""
    run_id = dev("wake", "stay").out.strip()
    wait_until(lambda: (dev("show", "--json", run_id).document["waiting_for"] or {}).get("kind") == "model")
    yield run_id
    dev("cancel", run_id)


def test_run_waits_for_the_end_shows_it_and_its_exit_code_says_which_it_was(dev: Dev) -> None:
    called = dev("run", "say it back")
    assert (called.code, called.err.startswith("accepted: run_")) == (0, True)
    shown = ("done", "say it back", "It is answered.", "echo handle", "1 of 10", "3 model calls (script:cli-tests)")
    assert [text for text in shown if text not in called.out] == []
    for goal, code, status in (("fail", 1, "failed"), ("escalate", 3, "escalated"), ("which", 3, "paused")):
        called = dev("run", "--json", goal)
        assert (called.code, called.err, called.document["status"]) == (code, "", status)


def test_limits_and_context_reach_the_run(dev: Dev) -> None:
    deadline = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    limits = ("--max-steps", "4", "--max-tokens", "900", "--max-cost-usd", "0.5", "--max-reframes", "1")
    view = dev.run("say it back", *limits, "--deadline", deadline, "--context", '{"tone": "warm"}', "--untrusted")
    wanted = {"max_steps": 4, "max_tokens": 900, "max_cost_usd": 0.5, "max_reframes": 1, "deadline_at": deadline}
    assert {name: view["budget"][name] for name in wanted} == wanted
    first = dev("entries", "--json", view["run_id"]).documents[0]
    brief = first["event"]["brief"]
    assert (brief["context"], brief["untrusted"]) == ({"tone": "warm"}, True)


def test_an_answer_sets_an_escalated_run_going_again_which_is_followed_to_its_next_end(dev: Dev) -> None:
    run_id = dev.run("escalate")["run_id"]
    assert dev("answer", "--max-steps", "15", run_id, "look once more").code == 0
    watched = dev("show", "--watch", run_id)
    assert watched.code == 3
    assert ("✓ frame" in watched.err, "✓ frame" in watched.out) == (True, False), "each row is shown once"
    view = dev("show", "--json", run_id).document
    assert (view["reopened"], view["budget"]["max_steps"]) == (1, 15)
    for follow in ("tail", "entries"):
        statuses = [entry["status"] for entry in dev(follow, "--json", run_id).documents]
        assert (statuses.count("escalated"), statuses[-1]) == (2, "escalated"), follow
    assert dev("tail", run_id).out.count("  spent  ") == 1


def test_why_says_where_a_run_stands_and_what_it_waits_for(dev: Dev, staying: str) -> None:
    assert "the reply to model call 1 (frame), for" in dev("why", staying).out
    assert dev("why", "--json", SOME_RUN).code == 5


@pytest.mark.parametrize("command", [("tail",), ("show", "--watch")])
def test_ctrl_c_leaves_and_the_run_goes_on(dev: Dev, staying: str, command: tuple[str, ...]) -> None:
    with started(*command, staying, AGENTIC_URL=dev.url) as process:
        stream = process.stdout if command == ("tail",) else process.stderr
        assert stream
        assert stream.readline()
        interrupt(process)
        _, err = process.communicate(timeout=10)
    assert (process.returncode, "the run goes on" in err, "Traceback" in err) == (130, True, False)
    assert dev("show", "--json", staying).document["status"] == "running"


def test_a_terminal_shows_what_a_watched_run_waits_for(dev: Dev, staying: str) -> None:
    terminal, end = os.openpty()
    env, seen = clean({"AGENTIC_URL": dev.url, "TERM": "xterm"}), b""
    command = [*COMMAND, "show", "--watch", staying]
    with subprocess.Popen(command, env=env, cwd=ROOT, stderr=end, start_new_session=True, text=True) as process:
        os.close(end)
        while b"waits for the reply to model call 1 (frame), for " not in seen:
            seen += os.read(terminal, 4096)
        interrupt(process)
    os.close(terminal)
    assert process.returncode == 130


def test_a_reader_that_goes_away_is_no_error_and_a_full_disk_is_one(dev: Dev, done: dict[str, Any]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outputs = {writing: (141, b"")}
    if FULL.exists():
        outputs[os.open(FULL, os.O_WRONLY)] = (1, b"agentic: No space left on device: make room on the disk\n")
    env = clean({"AGENTIC_URL": dev.url, "PYTHONUNBUFFERED": ""})
    for command in (["entries", done["run_id"]], ["--help"], ["--version"]):
        for out, ends in outputs.items():
            called = subprocess.run([*COMMAND, *command], env=env, cwd=ROOT, stdout=out, stderr=PIPE, check=False)
            assert (called.returncode, called.stderr) == ends, command
    for out in outputs:
        os.close(out)


def test_closed_outputs_are_no_error(dev: Dev, done: dict[str, Any]) -> None:
    for run, code in ((done["run_id"], 0), (SOME_RUN, 5)):
        closed = ["sh", "-c", '"$@" >&- 2>&-', "sh", *COMMAND, "show", run]
        called = subprocess.run(closed, env=clean({"AGENTIC_URL": dev.url}), cwd=ROOT, check=False)
        assert called.returncode == code


def test_tail_without_a_run_tells_what_all_runs_do_from_now_on(dev: Dev, done: dict[str, Any]) -> None:
    with started("tail", AGENTIC_URL=dev.url) as process:
        assert process.stderr
        assert "following all runs" in process.stderr.readline()
        first = dev("wake", "slowly").out.strip()
        lines = read_until(process.stdout, lambda line: "step 1: echo ok" in line)
        (agent,) = running_with(f"agent_service serve --config {dev.facts['config']}")
        os.kill(agent, signal.SIGKILL)
        second = ""
        while not second:  # until the agent is back
            second = dev("wake", "say it back").out.strip()
        open_runs = {first, second}
        while open_runs:
            lines += read_until(process.stdout, lambda line: "✓ done" in line)
            open_runs -= {run for run in open_runs if run in lines[-1]}
        interrupt(process)
        err = process.stderr.read()
        assert process.wait(10) == 130
    assert done["run_id"] not in "".join(lines)
    told = [line.split(":")[0] for line in err.splitlines()]
    assert told == ["waiting for the agent", "the agent is back", "agentic"]


def read_until(stream: Any, fits: Callable[[str], bool]) -> list[str]:
    lines = []
    for line in stream:
        lines.append(line)
        if fits(line):
            return lines
    raise AssertionError(f"it never came: {lines}")


COMPLETED = {
    "bash": """eval "$({program} --show-completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_{function}_completion {program}; printf '%s\\n' "${{COMPREPLY[@]}}" """,
    "zsh": """autoload -Uz compinit; compinit -u -D; eval "$({program} --show-completion zsh)"
test "$_comps[{program}]" = _{function}_completion
_arguments() {{ print -l -- "$@" }}; _files() {{ }}; words=({words}); CURRENT=$#words; _{function}_completion""",
    "fish": '{program} --show-completion fish | source; complete -C "{words}"',
}


def completed(shell: str, words: str, **environment: str) -> str:
    program = words.split()[0]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: install it as any package")
    script = COMPLETED[shell].format(program=program, words=words, function=program.replace("-", "_"))
    env = clean(environment) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.parametrize("shell", COMPLETED)
def test_a_shell_completes_commands_options_values_and_the_ids_of_runs_where_there_is_an_agent(
    shell: str, dev: Dev, done: dict[str, Any]
) -> None:
    assert "python" in completed(shell, "ductile-gateway new words --lang py")
    assert done["run_id"] in completed(shell, "agentic show run_", AGENTIC_URL=dev.url)
    assert "run_" not in completed(shell, "agentic show run_", AGENTIC_URL="http://127.0.0.1:9")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all tests here: a demo has to work in the folder of an earlier one."""
    folder = tmp_path_factory.mktemp("demo")
    yield folder
    assert running_with(folder) == {}


def test_the_story_is_played_to_its_end_by_two_agents_and_no_step_runs_twice(folder: Path) -> None:
    with started("demo", "--json", "--dir", folder) as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    told = json.loads(out)
    assert (told["run"]["status"], told["verified"], told["agents"]) == ("done", True, 2)
    steps = [(step["tool"], step["command"], step["attempt"], step["status"]) for step in told["run"]["steps"]]
    commands = [("fetch", "handle"), ("fetch", "handle"), ("letters", "compare"), ("letters", "send")]
    assert steps == [(*command, 1, "ok") for command in commands]
    assert (folder / "outbox" / "how-we-copy.txt").read_text().count("(the other page: ") == 3
    for shown in ("Which one counts?", "kill -9", '"to": "the team"', "is as it was written"):
        assert shown in err
    assert running_with(folder) == {}


def test_a_demo_that_is_stopped_half_way_stops_everything(folder: Path) -> None:
    with started("demo", "--dir", folder) as process:
        assert process.stdout
        for line in process.stdout:
            if "kill -9" in line:
                break
        else:
            raise AssertionError(process.communicate())
        interrupt(process)
        interrupt(process)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "everything that was started is stopped" in out
    assert "Traceback" not in err
    wait_until(lambda: running_with(folder) == {})  # who writes the pages ends by itself when its agent has
