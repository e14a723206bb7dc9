"""Both services are replaced while runs go on, or stopped and succeeded: no run is lost, none stands still, and no
write is made twice."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from agent_service.workbench.dev import DevStack
from tests.e2e.agents import another_agent, another_gateway
from tests.e2e.bodies import recording, running, to_the_end, wake
from tests.kit.waiting import until

RUNS = 30
PAUSE_S = 0.1


async def wake_at_last(made: DevStack, name: str) -> str:
    """A caller that asks again under the same name, until it is told that its run is durable."""
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=5) as client:
        for _ in range(300):
            try:
                answer = await client.post("/v1/wake", json={"goal": "record", "wake_id": name})
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.status_code == 202:
                return str(answer.json()["run_id"])
            await asyncio.sleep(PAUSE_S)
    raise AssertionError(f"{name} was never accepted")


async def wakes(made: DevStack) -> list[str]:
    """The ids of runs that callers ask for one after the other."""
    run_ids = []
    for number in range(RUNS):
        run_ids.append(await wake_at_last(made, f"w{number}"))
        await asyncio.sleep(PAUSE_S)
    return run_ids


async def ended(made: DevStack, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    return await asyncio.gather(*(to_the_end(made, run_id) for run_id in run_ids))


def written_twice(file: Path) -> list[str]:
    """Steps that were written by more than one call, or twice by one: calls are named run:step:tool:attempt."""
    steps = Counter(line.rpartition(":probe:")[0] for line in file.read_text().splitlines())
    return [step for step, times in steps.items() if times > 1]


async def test_both_are_replaced_on_their_stores_while_runs_come_in(tmp_path: Path) -> None:
    file = tmp_path / "marks" / "lines"
    async with running(tmp_path / "stack", recording(file)) as made, asyncio.TaskGroup() as group:
        coming = group.create_task(wakes(made))
        async with (
            another_gateway(made.config, "--take-over") as gateway,
            another_agent(made.config, "--take-over") as agent,
        ):
            await asyncio.gather(gateway.ready(), agent.ready())
            runs = await ended(made, await coming)
    assert [run["state"] for run in runs] == ["done"] * RUNS
    assert len(file.read_text().splitlines()) == 2 * RUNS
    assert written_twice(file) == []


async def test_both_are_stopped_for_longer_than_their_leases_succeeded_by_others_and_come_back(tmp_path: Path) -> None:
    file, short, two = tmp_path / "marks" / "lines", {"lease_s": 3}, tmp_path / "two"
    async with running(tmp_path / "stack", recording(file), agent=short, gateway=short) as made:
        first = [await wake(made) for _ in range(10)]
        stopped = pids(made)
        send(signal.SIGSTOP, stopped)
        async with another_gateway(made.config, store=two) as gateway, another_agent(made.config, store=two) as agent:
            await gateway.ready()
            there = replace(made, url=await agent.ready())
            second = [await wake(there) for _ in range(10)]
            send(signal.SIGCONT, stopped)
            await until(lambda: not pids(made) & stopped, within_s=20)
            theirs = await ended(there, second)
        ours = await ended(made, first)
    assert [run["state"] for run in theirs] == ["done"] * 10
    assert [run for run in ours if run["state"] != "done" and "in_doubt" not in run["summary"]] == []
    assert written_twice(file) == []


def pids(made: DevStack) -> set[int | None]:
    return {made.agent.pid, made.gateway.pid}


def send(number: signal.Signals, processes: set[int | None]) -> None:
    for pid in processes:
        assert pid
        os.kill(pid, number)
