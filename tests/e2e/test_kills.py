"""kill -9 of each process in the middle of a step: the run goes on, and every tool has run exactly once."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent_service.workbench.dev import DevStack, Service
from groundwork.nats import link as nats_link
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from tests.e2e.bodies import lines, on_the_bus, recording, running, to_the_end, touch, wake
from tests.kit.waiting import until


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
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
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


AT_ONCE_S = 15.0
"""From the kill, with the start of the process, on a machine that is busy: half of ack_wait."""


async def test_a_result_that_a_killed_agent_had_taken_and_not_read_is_taken_up_again_at_once(tmp_path: Path) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(file, go=go)) as made:
        await wake(made)
        await until(lambda: lines(file) == 1, within_s=20)
        _freeze(made.agent)
        touch(go, 1)
        await until(lambda: _is_in_hand(made, subjects.STREAM_RESULTS, subjects.DURABLE_LOOP), within_s=20)
        made.agent.kill()
        await until(lambda: lines(file) == 2, within_s=AT_ONCE_S)


async def test_a_request_that_a_killed_gateway_had_taken_and_not_read_is_carried_out_at_once(tmp_path: Path) -> None:
    file = tmp_path / "marks" / "lines"
    async with running(tmp_path / "stack", recording(file)) as made:
        _freeze(made.gateway)
        await wake(made)
        await until(lambda: _is_in_hand(made, subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS), within_s=20)
        made.gateway.kill()
        await until(lambda: lines(file) >= 1, within_s=AT_ONCE_S)


def _freeze(service: Service) -> None:
    """The server delivers to it, and it reads nothing any more."""
    assert service.pid is not None
    os.kill(service.pid, signal.SIGSTOP)


async def _is_in_hand(made: DevStack, stream: str, durable: str) -> bool:
    link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)))
    try:
        return bool((await link.jetstream.consumer_info(stream, durable)).num_ack_pending)
    finally:
        await link.close()


async def test_an_agent_killed_while_the_model_thinks_asks_again_and_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "marks" / "lines"
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
