"""kill -9 of each process in the middle of a step: the run goes on, and every tool has run exactly once."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from agent_service.workbench.dev import DevStack
from schemas import subjects
from tests.e2e.bodies import lines, on_the_bus, recording, running, to_the_end, touch, wake
from tests.kit.waiting import until


async def _agent(made: DevStack) -> None:
    made.agent.kill()


async def _gateway(made: DevStack) -> None:
    made.gateway.kill()


async def _nats(made: DevStack) -> None:
    made.nats.kill()
    await made.nats.start()


async def _all(made: DevStack) -> None:
    made.agent.kill()
    made.gateway.kill()
    await _nats(made)


KILLS: tuple[Callable[[DevStack], Awaitable[None]], ...] = (_agent, _gateway, _nats, _all)


async def test_a_process_killed_while_a_tool_runs_costs_no_run_and_repeats_no_write(tmp_path: Path) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(file, go=go, steps=len(KILLS))) as made:
        run_id = await wake(made)
        for step, kill in enumerate(KILLS, start=1):
            await until(lambda step=step: lines(file) == step, within_s=30)  # type: ignore[misc] # a default of a lambda
            await kill(made)
            touch(go, step)
        ended = await to_the_end(made, run_id)
        completed = await on_the_bus(made, subjects.COMPLETED)
        requests = await on_the_bus(made, subjects.ALL_TOOL_REQUESTS)
    assert ended["state"] == "done", ended
    assert lines(file) == len(KILLS)
    assert [event["run_id"] for event in completed] == [run_id]
    assert [event["step"] for event in requests] == [1, 2, 3, 4]
