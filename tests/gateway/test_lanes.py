"""Lanes: a slow tool leaves room for the fast ones."""

import asyncio

import pytest

from ductile_gateway.calls.lanes import Lanes
from ductile_gateway.errors import TryAgain


async def hold(lanes: Lanes, tool: str, gate: asyncio.Event, entered: list[str]) -> None:
    async with lanes.enter(tool):
        entered.append(tool)
        await gate.wait()


async def test_no_more_calls_of_a_tool_run_than_its_lane_is_wide_and_no_more_wait_than_there_is_room() -> None:
    lanes, gate, entered = Lanes({"slow": 2, "fast": 2}, room=2), asyncio.Event(), list[str]()
    tasks = [asyncio.create_task(hold(lanes, "slow", gate, entered)) for _ in range(5)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [type(task.exception()) for task in done] == [TryAgain]
    assert entered == ["slow", "slow"]
    gate.set()
    await asyncio.wait(tasks)
    assert entered == ["slow"] * 4


async def test_a_full_lane_holds_up_no_other_tool() -> None:
    lanes, gate, entered = Lanes({"slow": 1, "fast": 1}, room=0), asyncio.Event(), list[str]()
    async with lanes.enter("slow"), asyncio.timeout(1), lanes.enter("fast"), lanes.enter("unheard-of"):
        entered.append("fast")
    assert entered == ["fast"]
    gate.set()


async def test_who_gives_up_waiting_leaves_its_place_to_the_next() -> None:
    lanes, gate, entered = Lanes({"slow": 1}, room=1), asyncio.Event(), list[str]()
    async with lanes.enter("slow"):
        waiting = asyncio.create_task(hold(lanes, "slow", gate, entered))
        await asyncio.sleep(0)
        with pytest.raises(TryAgain):
            async with lanes.enter("slow"):
                pass
        waiting.cancel()
        await asyncio.wait([waiting])
    gate.set()
    async with asyncio.timeout(1):
        await hold(lanes, "slow", gate, entered)
    assert entered == ["slow"]
