"""Following runs with tail and --watch, through restarts of the agent."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cli.calling import agentic_here, interrupt, running_with, started
from tests.cli.dev_stack import Dev

SOME_RUN = "run_00000000000000000000000000"


def test_watching_lives_through_a_kill_of_the_agent(dev: Dev) -> None:
    with started("run", "--watch", "slowly", AGENTIC_URL=dev.url) as process:
        assert process.stderr
        lines = read_until(process.stderr, lambda line: "✓ step 1" in line)
        kill_agent_of(dev)
        err, out = process.stderr.read(), the_rest(process.stdout)
        assert process.wait(10) == 0, err
    assert err.count("waiting for the agent: no agent answers") == 1
    assert err.count("the agent is back") == 1
    told = [line[10:23].strip() for line in (*lines, *err.splitlines()) if line[:2].isdigit()]
    assert [title for title in told if title.startswith("✓")] == [f"✓ {name}" for name in OF_A_SLOW_RUN]
    assert "2 of 10" in out


OF_A_SLOW_RUN = ("accepted", "frame", "plan", "step 1", "reflect", "plan", "step 2", "reflect", "done")


def test_tail_tells_what_show_tells_and_what_to_do_then(dev: Dev, done: dict[str, Any]) -> None:
    told = [line[10:23].strip() for line in dev("tail", done["run_id"]).out.splitlines()]
    assert told == ["✓ accepted", "✓ frame", "✓ plan", "✓ step 1", "✓ reflect", "✓ done", "spent"]
    for title in told[:-1]:
        assert title in dev("show", done["run_id"]).out
    escalated = dev.run("escalate")["run_id"]
    *_, ending, what_now, command, spent = dev("tail", escalated).out.splitlines()
    assert "! escalated" in ending
    assert what_now.split()[0] == "next"
    assert command.split() == ["agentic", "answer", escalated, "'TEXT'"]
    assert "3 model calls (script:cli-tests), 0 tokens" in spent


def test_tail_without_a_run_tells_what_all_runs_do_from_now_on(dev: Dev, done: dict[str, Any]) -> None:
    with started("tail", AGENTIC_URL=dev.url) as process:
        assert process.stdout
        assert process.stderr
        assert "following all runs" in process.stderr.readline()
        first = dev("wake", "slowly").out.strip()
        lines = read_until(process.stdout, lambda line: "step 1: echo ok" in line)
        kill_agent_of(dev)
        second = dev_again(dev, "say it back")
        lines += read_until(process.stdout, lambda line: first in line and "✓ done" in line)
        interrupt(process)
        err = the_rest(process.stderr)
        assert process.wait(10) == 130
    assert done["run_id"] not in "".join(lines)
    assert any(second in line and "✓ done" in line for line in lines)
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "waiting for the agent",
        "the agent is back",
        "agentic",
    ]


def dev_again(dev: Dev, goal: str) -> str:
    """Ask for a run as soon as the agent is back."""
    deadline = datetime.now(UTC) + timedelta(seconds=20)
    while (called := dev("wake", goal)).code == 69:
        assert datetime.now(UTC) < deadline
    return called.out.strip()


def test_an_agent_that_was_never_there_is_not_waited_for() -> None:
    for command in (("tail",), ("tail", SOME_RUN), ("show", "--watch", SOME_RUN)):
        assert agentic_here(*command, "--url", "http://127.0.0.1:1").code == 69


def the_rest(stream: Any) -> str:
    """What was not read of it yet; communicate() knows nothing of what a reader by lines has read ahead."""
    return str(stream.read())


def read_until(stream: Any, fits: Callable[[str], bool]) -> list[str]:
    lines = []
    for line in stream:
        lines.append(line)
        if fits(line):
            return lines
    raise AssertionError(f"it never came: {lines}")


def kill_agent_of(dev: Dev) -> None:
    (pid,) = running_with(f"agent_service serve --config {dev.facts['config']}")
    os.kill(pid, signal.SIGKILL)
