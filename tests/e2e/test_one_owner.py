"""A bus has one agent: a second is told so, one that takes over fences the first, and no run is lost or done twice."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

from tests.e2e.agents import another_agent, last_word
from tests.e2e.bodies import lines, recording, running, to_the_end, touch, wake
from tests.kit.waiting import until

SHORT = {"lease_s": 3}


def agent_log(folder: Path) -> Path:
    return folder / "stack" / "logs" / "agent.log"


async def test_a_second_agent_with_another_store_is_told_who_owns_the_bus_and_takes_no_run_from_it(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path / "stack", recording(tmp_path / "marks" / "lines", steps=1)) as made,
        another_agent(made.config, store=tmp_path / "second") as second,
    ):
        runs = [await wake(made) for _ in range(6)]
        ended = [await to_the_end(made, run_id) for run_id in runs]
        code, told = await second.ended()
        facts = (f"process {made.agent.pid} on {socket.gethostname()}", str(tmp_path / "stack" / "agent"), "since 20")
    assert code == 78
    assert [
        fact for fact in (*facts, "renewed", "expires 10 s after", "`agentic serve --take-over`") if fact not in told
    ] == []
    assert [run["state"] for run in ended] == ["done"] * 6
    assert lines(tmp_path / "marks" / "lines") == 6


async def test_an_agent_of_the_same_store_takes_over_in_the_middle_of_a_run_which_goes_on_once(tmp_path: Path) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(file, go=go)) as made:
        run_id = await wake(made)
        await until(lambda: lines(file) == 1)
        async with another_agent(made.config, "--take-over") as green:
            await green.ready()
            touch(go, 1)
            await until(lambda: lines(file) == 2)
            touch(go, 2)
            ended = await to_the_end(made, run_id)
            told = last_word(agent_log(tmp_path))
    assert (ended["state"], lines(file)) == ("done", 2)
    assert f"process {green.process.pid}" in told


async def test_an_agent_that_was_stopped_for_longer_than_its_lease_finds_itself_fenced(tmp_path: Path) -> None:
    file = tmp_path / "marks" / "lines"
    async with running(tmp_path / "stack", recording(file, steps=1), agent=SHORT) as made:
        first = [await wake(made) for _ in range(3)]
        await asyncio.gather(*(to_the_end(made, run_id) for run_id in first))
        stopped = made.agent.pid
        assert stopped
        os.kill(stopped, signal.SIGSTOP)
        async with another_agent(made.config, store=tmp_path / "second") as second:
            there = replace(made, url=await second.ready())
            runs = [await wake(there) for _ in range(3)]
            ended = [await to_the_end(there, run_id) for run_id in runs]
            os.kill(stopped, signal.SIGCONT)
            await until(lambda: made.agent.pid != stopped)
            told = last_word(agent_log(tmp_path))
            runs += [await wake(there)]
            ended += [await to_the_end(there, runs[-1])]
    assert str(tmp_path / "second") in told
    assert [run["state"] for run in ended] == ["done"] * 4
    assert lines(file) == 7
