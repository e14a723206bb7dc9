"""Bodies that come slowly take no place from those that come at once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.types import Message

from groundwork.http.bodies import Bodies, BodyRefused

LIMIT = 100
ROOM_FOR_FOUR = 4 * LIMIT


def request(receive: Callable[[], Awaitable[Message]]) -> Request:
    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def whole() -> Message:
    return {"type": "http.request", "body": b"whole"}


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def slow(bodies: Bodies, whose: str) -> asyncio.Task[bytes]:
    return asyncio.create_task(bodies.read(request(never), whose=whose))


async def refused(reading: asyncio.Task[bytes]) -> int:
    with pytest.raises(BodyRefused) as refusal:
        await asyncio.wait_for(reading, 5)
    return refusal.value.status


async def test_who_has_most_places_loses_the_oldest_of_them() -> None:
    bodies = Bodies(LIMIT, room=ROOM_FOR_FOUR)
    of_a_guest = slow(bodies, "guest")
    crowd = [slow(bodies, "crowd") for _ in range(3)]
    await asyncio.sleep(0)
    assert await bodies.read(request(whole), whose="guest") == b"whole"
    assert await refused(crowd[0]) == 408
    others = [of_a_guest, *crowd[1:]]
    assert not any(reading.done() for reading in others)
    for reading in others:
        reading.cancel()


async def test_however_many_come_slowly_one_that_comes_at_once_is_read() -> None:
    bodies = Bodies(LIMIT, room=ROOM_FOR_FOUR)
    crowd = [slow(bodies, "crowd") for _ in range(50)]
    await asyncio.sleep(0)
    assert await bodies.read(request(whole), whose="crowd") == b"whole"
    assert [await refused(reading) for reading in crowd[:47]] == [408] * 47
    for reading in crowd:
        reading.cancel()
