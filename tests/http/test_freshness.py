"""What is shown is as new as what anybody had stored when it was asked for, and never waited for without end."""

import asyncio

from agent_service.api.desk import Freshness
from groundwork.service.errors import TryAgain


class Copy:
    """Comes as far as the log whenever it is let to."""

    def __init__(self) -> None:
        self.looks = 0
        self.goes_on = asyncio.Event()

    async def caught_up(self) -> None:
        self.looks += 1
        await self.goes_on.wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_those_who_come_while_one_is_looked_for_wait_for_one_more_look_together() -> None:
    copy = Copy()
    fresh = Freshness(copy.caught_up)
    first = asyncio.create_task(fresh.wait())
    await settled()
    others = [asyncio.create_task(fresh.wait()) for _ in range(100)]
    await settled()
    copy.goes_on.set()
    await asyncio.gather(first, *others)
    assert copy.looks == 2


async def test_what_is_known_is_shown_where_nobody_can_say_more() -> None:
    async def nobody_says() -> None:
        raise TryAgain("the log has no leader")

    await asyncio.wait_for(Freshness(nobody_says).wait(), 1)
    await asyncio.wait_for(Freshness(Copy().caught_up, within_s=0.01).wait(), 1)
