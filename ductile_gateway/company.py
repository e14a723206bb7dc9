"""The gateways of a bus, as one of them meets the others: whose part something is, and what one that is gone left."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from ductile_gateway.bus.in_flight import Absent, NatsRecords, hear
from ductile_gateway.bus.ownership import Members
from ductile_gateway.calls.admission import Lanes
from ductile_gateway.calls.places import Places
from ductile_gateway.calls.shared_places import SharedPlaces
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain

LOOK_S = 0.5
TAKE_UP_S = 5.0

Work = Callable[[], Awaitable[object]]


class Company:
    """Of a gateway that is alone."""

    is_alone = True
    """Whether there can be no other."""

    def names(self) -> tuple[str, ...]:
        """Of all that live, this one first; one that is alone needs none: an empty one."""
        return ("",)

    def lanes(self, widths: Mapping[str, int], *, most: int, room: int) -> Lanes:
        """Places for calls: `widths` hold over all gateways, `most` is for this one."""
        return Lanes(widths, most=most, room=room)

    async def deal(self, lanes: Lanes) -> None:
        """See to it that they do, until cancelled, or it ends: of one that is alone all places are its own."""

    async def as_one(self, name: str, work: Work) -> None:
        """Do what only one gateway may do at a time, while it is this one's part; until cancelled, or it ends."""
        del name
        await work()

    async def take_up(self, recover: Work) -> None:
        """Recover what is left: now, and as often as there may be more; until cancelled, or it ends."""
        await recover()


class Together(Company):
    is_alone = False

    def __init__(self, link: NatsLink, members: Members) -> None:
        self._link = link
        self._members = members
        self._absent = Absent(members)
        self._left = asyncio.Event()
        self._dealing: SharedPlaces | None = None

    def names(self) -> tuple[str, ...]:
        return (self._members.me, *sorted(self._members.live - {self._members.me}))

    def gone(self, member: str) -> None:
        self._absent.gone(member)
        self._left.set()
        if self._dealing:
            self._dealing.heard_all()

    def lanes(self, widths: Mapping[str, int], *, most: int, room: int) -> Lanes:
        return Lanes(widths, most=most, room=room, share=self._share)

    def _share(self, places: Places, widths: Mapping[str, int]) -> SharedPlaces:
        records = NatsRecords(self._link)
        self._dealing = SharedPlaces(places, widths, records, me=self._members.me, is_gone=self._absent.is_gone)
        return self._dealing

    async def deal(self, lanes: Lanes) -> None:
        if lanes.shared:
            await hear(self._link, lanes.shared)
            await lanes.shared.run()

    async def as_one(self, name: str, work: Work) -> None:
        while True:
            await self._is_ours(name, True)
            async with asyncio.TaskGroup() as group:
                doing = group.create_task(_insist(work))
                await self._is_ours(name, False)
                doing.cancel()

    async def _is_ours(self, name: str, wanted: bool) -> None:
        while (self._members.heir(name) == self._members.me) != wanted:  # noqa: ASYNC110 - members come and go untold
            await asyncio.sleep(LOOK_S)

    async def take_up(self, recover: Work) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._left.clear()
                group.create_task(_done(recover))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TAKE_UP_S):
                        await self._left.wait()


async def _insist(work: Work) -> None:
    while True:
        try:
            await work()
        except TryAgain as error:
            await asyncio.sleep(error.delay_s)
        else:
            return


async def _done(work: Work) -> None:
    with contextlib.suppress(TryAgain):  # it is done again anyway
        await work()
