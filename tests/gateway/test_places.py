"""Places: how many calls may be under way at the same time, those included that were before."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from ductile_gateway.calls.places import Places

AGES_S = 20.0


async def comer(places: Places, inside: list[int], gate: asyncio.Event) -> None:
    async with places.one(within_s=AGES_S) as there_is_one:
        assert there_is_one
        inside.append(len(inside))
        await gate.wait()


async def settle() -> None:
    """Let everything go on that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_come_in_than_there_are_places() -> None:
    places, inside, gate = Places(2), list[int](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(comer(places, inside, gate))
        await settle()
        assert len(inside) == 2
        gate.set()
    assert len(inside) == 5


async def test_who_finds_no_place_in_time_has_none_and_leaves_none() -> None:
    places = Places(1)
    async with places.one(within_s=AGES_S):
        async with places.one(within_s=0.01) as late:
            assert not late
        async with places.one(within_s=-1) as too_late:
            assert not too_late
    async with places.one(within_s=0.01) as there_is_one:
        assert there_is_one


async def test_who_is_there_already_fills_a_place() -> None:
    places = Places(1)
    async with places.one_more(), places.one(within_s=0.01) as there_is_one:
        assert not there_is_one


async def test_who_is_there_already_never_waits_and_when_they_are_too_many_nobody_comes_in_until_enough_have_gone() -> (
    None
):
    places = Places(2)
    async with AsyncExitStack() as third:
        async with AsyncExitStack() as two:
            await two.enter_async_context(places.one(within_s=AGES_S))
            await two.enter_async_context(places.one_more())
            async with asyncio.timeout(1):
                await third.enter_async_context(places.one_more())
            async with AsyncExitStack() as fourth, asyncio.timeout(1):
                await fourth.enter_async_context(places.one_more())
            async with places.one(within_s=0.01) as there_is_one:
                assert not there_is_one
        async with places.one(within_s=0.01) as there_is_one:
            assert there_is_one


async def test_a_place_is_free_again_after_an_error() -> None:
    places = Places(1)
    for way in (places.one(within_s=AGES_S), places.one_more()):
        with pytest.raises(ZeroDivisionError):
            async with way:
                1 / 0  # noqa: B018 - any error will do
    async with places.one(within_s=0.01) as there_is_one:
        assert there_is_one


async def test_who_is_cancelled_while_waiting_takes_no_place() -> None:
    places, inside, gate = Places(1), list[int](), asyncio.Event()
    async with places.one(within_s=AGES_S):
        waiting = asyncio.create_task(comer(places, inside, gate))
        await settle()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with places.one(within_s=0.01) as there_is_one:
        assert there_is_one
    assert not inside
