"""kill -9 of each process in the middle of a step: the run goes on, and every tool has run exactly once."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent_service.dev import DevStack
from schemas import subjects
from tests.e2e.bodies import lines, on_the_bus, recording, running, to_the_end, touch, wake
from tests.nats_server import until


async def _kill_agent(made: DevStack) -> None:
    made.agent.kill()


async def _kill_gateway(made: DevStack) -> None:
    made.gateway.kill()


async def _kill_nats(made: DevStack) -> None:
    made.nats.kill()
    await made.nats.start()


async def _kill_all(made: DevStack) -> None:
    made.agent.kill()
    made.gateway.kill()
    await _kill_nats(made)


@pytest.mark.parametrize("kill", [_kill_agent, _kill_gateway, _kill_nats, _kill_all])
async def test_a_process_killed_while_a_tool_runs_costs_no_run_and_repeats_no_write(
    tmp_path: Path, kill: Callable[[DevStack], Awaitable[None]]
) -> None:
    file, go = tmp_path / "lines", tmp_path / "go"
    async with running(tmp_path / "stack", recording(file, go=go)) as made:
        run_id = await wake(made)
        await until(lambda: lines(file) == 1)
        await kill(made)
        touch(go, 1)
        await until(lambda: lines(file) == 2, within_s=30)
        await kill(made)
        touch(go, 2)
        ended = await to_the_end(made, run_id)
        completed = await on_the_bus(made, subjects.COMPLETED)
        requests = await on_the_bus(made, subjects.ALL_TOOL_REQUESTS)
    assert ended["state"] == "done", ended
    assert lines(file) == 2
    assert [event["run_id"] for event in completed] == [run_id]
    assert [event["step"] for event in requests] == [1, 2]


async def test_an_agent_killed_while_the_model_thinks_asks_again_and_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    script = recording(file)
    for rule in script["rules"]:
        rule["wait_s"] = 1.0
    async with running(tmp_path / "stack", script) as made:
        run_id = await wake(made)
        await until(lambda: lines(file) == 1, within_s=20)
        made.agent.kill()
        ended = await to_the_end(made, run_id)
    assert ended["state"] == "done", ended
    assert lines(file) == 2
    assert ended["usage"]["calls"] == 4
