"""Calls the command `agentic`, also beside an `agentic dev` for the tests of one file."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_service.cli.main import main
from tests.kit.logs import logging_kept

COMMAND = (sys.executable, "-m", "agent_service")
ROOT = Path(__file__).parent.parent.parent
WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Called:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]


def agentic(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> Called:
    """Runs one call as a process; fails on a traceback."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=clean(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Called(done.returncode, done.stdout, done.stderr)


def agentic_here(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> Called:
    """Runs one call in this process, which is faster: for commands without lasting effects here."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err), logging_kept():
        for name, value in environment.items():
            patched.setenv(name, value)
        if cwd != ROOT:
            patched.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
    out.seek(0)
    err.seek(0)
    return Called(int(ended.value.code or 0), out.read(), err.read())


async def called(*arguments: str | Path, **environment: str) -> Called:
    """Runs one call for a test with an event loop; fails on a traceback."""
    done = await asyncio.to_thread(agentic_here, *arguments, cwd=ROOT, **environment)
    assert "Traceback" not in done.err, done.err
    return done


@contextmanager
def started(*arguments: str | Path, cwd: str | Path = ROOT, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Starts a call in its own process group; ends it on exit if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=clean(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            interrupt(process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(WITHIN_S)
            process.kill()


def interrupt(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)


def clean(environment: dict[str, str]) -> dict[str, str]:
    """A user's environment without our settings and without keys that would cost money, plus these variables."""
    ours = ("AGENT", "GATEWAY_", "COLUMNS", "ANTHROPIC_", "OPENAI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PYTHONPATH": str(ROOT)} | environment


def running_with(text: str | Path) -> dict[int, str]:
    return {pid: line for pid, line in _processes() if str(text) in line and pid != os.getpid()}


def _processes() -> Iterator[tuple[int, str]]:
    if not Path("/proc/self").exists():  # as on macOS
        listed = subprocess.run(["ps", "axww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
        yield from ((int(line.split()[0]), line) for line in listed.stdout.splitlines())
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


SCRIPT = Path(__file__).parent / "script.yaml"


@dataclass(frozen=True, slots=True)
class Dev:
    """The facts that `agentic dev` printed, and its folder."""

    folder: Path
    facts: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def __call__(self, *arguments: str | Path, **environment: str) -> Called:
        call = agentic if arguments[0] == "dev" else agentic_here
        return call(*arguments, cwd=self.folder.parent, AGENTIC_URL=self.url, **environment)

    def run(self, goal: str, *arguments: str) -> dict[str, Any]:
        view: dict[str, Any] = self("run", "--json", *arguments, goal).document
        return view


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    folder = tmp_path_factory.mktemp("cli") / ".agentic"
    with started("dev", "--json", "--dir", folder, "--http-port", "0", "--script", SCRIPT) as process:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.communicate()
        yield Dev(folder, json.loads(line))
        process.terminate()
        assert process.wait(20) == 0
    assert running_with(folder) == {}


@pytest.fixture(scope="module")
def done(dev: Dev) -> dict[str, Any]:
    return dev.run("say it back")
