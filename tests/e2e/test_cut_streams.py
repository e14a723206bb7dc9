"""A reader of the stream of all runs that is cut off again and again, while the agent is killed and started again."""

import asyncio
import contextlib
import random
from pathlib import Path

import httpx2

from tests.e2e.by_hand import Bench, bench, one_step
from tests.http.sse import Event, events
from tests.kit.waiting import until

RUNS, CUTS, KILLS = 12, 20, 2


async def work(made: Bench) -> None:
    """Wakes runs and answers their requests, over every start of the agent."""
    for number in range(RUNS):
        await woken(made, f"w-{number}")
        await made.answer(await made.request(number + 1))


async def woken(made: Bench, wake_id: str) -> None:
    """Wakes once, however often it must be said: who was answered by a kill says the same wake again."""
    while True:
        await until(made.is_ready, within_s=20)
        with contextlib.suppress(httpx2.TransportError):
            await made.wake(wake_id)
            return


async def some(made: Bench, most: int, after: int) -> list[Event]:
    """At most `most` events after position `after`, as far as the agent lives and says them."""
    told: list[Event] = []
    try:
        async with (
            asyncio.timeout(2),
            made.http.stream("GET", "/v1/events", headers={"Last-Event-ID": f"{after}"}) as answer,
        ):
            stream = events(answer)
            while len(told) < most:
                told.append(await anext(stream))
            await stream.aclose()  # type: ignore[attr-defined] # an async generator
    except (httpx2.TransportError, TimeoutError, StopAsyncIteration):
        pass
    return told


async def test_twenty_cuts_and_a_killed_agent_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 # where the reader is cut
    async with bench(tmp_path, one_step("look"), mortal=True) as made:
        working = asyncio.create_task(work(made))
        told: list[Event] = []
        for cut in range(CUTS):
            told += await some(made, chance.randint(1, 8), told[-1].id if told else 0)
            if cut in (CUTS // 3, 2 * CUTS // 3):
                await until(made.is_ready, within_s=20)
                made.agent.kill()
        await working
        await until(made.is_ready, within_s=20)
        ended = [await made.ended(run["run_id"]) for run in await made.runs()]
        told += await some(made, 1000, told[-1].id)
        journals = {run["run_id"]: await made.get(f"/v1/runs/{run['run_id']}/entries") for run in ended}
    assert [run["state"] for run in ended] == ["done"] * RUNS
    assert [event.id for event in told] == list(range(1, len(told) + 1))
    for run_id, journal in journals.items():
        entries = [event.data["entry"] for event in told if event.data["run"]["run_id"] == run_id]
        assert entries == journal.json()["entries"]
