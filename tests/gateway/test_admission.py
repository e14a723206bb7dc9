"""How many calls are let through at a time: per tool, into a Ductile, and to a plugin that could not be reached."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta

from ductile_gateway.calls.admission import Breaker, InFlight
from tests.gateway.parts import NOON, RUN

AGES_S = 20.0


class Crowd:
    """Tasks that come in, and stay until the gate is open. `inside`: how many have come in."""

    def __init__(self, door: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self.door = door
        self.gate = asyncio.Event()
        self.inside = 0

    async def comes(self) -> None:
        async with self.door():
            self.inside += 1
            await self.gate.wait()

    async def come(self, number: int) -> list[asyncio.Task[None]]:
        """So many, as far as they get at once."""
        tasks = [asyncio.create_task(self.comes()) for _ in range(number)]
        for _ in range(10):
            await asyncio.sleep(0)
        return tasks


async def is_free(in_flight: InFlight) -> bool:
    async with in_flight.new(RUN, within_s=0.01) as there_is_one:
        return there_is_one


async def test_no_more_new_calls_are_in_flight_than_may_be() -> None:
    in_flight = InFlight(2)
    crowd = Crowd(lambda: in_flight.new(RUN, within_s=AGES_S))
    tasks = await crowd.come(5)
    assert crowd.inside == 2
    assert not await is_free(in_flight)
    async with in_flight.new(RUN, within_s=-1) as too_late:
        assert not too_late
    tasks[-1].cancel()  # while it waits
    crowd.gate.set()
    await asyncio.wait(tasks)
    assert (crowd.inside, await is_free(in_flight)) == (4, True)


async def test_calls_that_were_begun_before_never_wait_and_keep_new_ones_out_until_enough_have_ended() -> None:
    in_flight = InFlight(2)
    async with AsyncExitStack() as third:
        async with AsyncExitStack() as two, asyncio.timeout(1):
            await two.enter_async_context(in_flight.new(RUN, within_s=AGES_S))
            await two.enter_async_context(in_flight.begun_before(RUN))
            await third.enter_async_context(in_flight.begun_before(RUN))
            async with in_flight.begun_before(RUN):
                pass
            assert not await is_free(in_flight)
        assert await is_free(in_flight)


def test_a_circuit_opens_after_failures_in_a_row_and_closes_with_time() -> None:
    breaker = Breaker(2, timedelta(seconds=10))
    assert not breaker.failed("a", NOON)
    breaker.succeeded("a")
    assert not breaker.failed("a", NOON)
    assert breaker.wait_s("a", NOON) == 0
    assert breaker.failed("a", NOON)
    assert breaker.wait_s("a", NOON) == 10
    assert breaker.wait_s("b", NOON) == 0
    assert breaker.left_alone(NOON + timedelta(seconds=4)) == {"a": 6}
    assert breaker.left_alone(NOON + timedelta(seconds=10)) == {}
    assert not breaker.failed("a", NOON + timedelta(seconds=11)), "which is told once"
    assert breaker.wait_s("a", NOON + timedelta(seconds=11)) == 10, "the first failure afterwards opens it again"
