"""How many calls of a tool all gateways of a bus carry out at a time: one value of a bucket per tool, changed by
compare-and-swap, which says how many each gateway has. Those of a gateway that has left count no more.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from pydantic import TypeAdapter, ValidationError

from ductile_gateway.bus.ownership import has_left
from groundwork.nats.asking import newest, replaced
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from groundwork.service.machine import monotonic
from schemas import subjects

LOOK_S = 0.5
LIVES_FOR_S = 2.0
"""How long a gateway that lived is not asked after again."""

_Stored = TypeAdapter(dict[str, int], config={"defer_build": True})


class Permits:
    """Those of gateway `me`. All methods raise TryAgain."""

    def __init__(self, link: NatsLink, me: str) -> None:
        self._link = link
        self._me = me
        self._mine: Counter[str] = Counter()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._lived: dict[str, float] = {}

    async def take(self, lane: str, most: int) -> bool:
        """Whether this gateway may do one thing more, where all together may do `most`."""
        return await self._changed(lane, 1, most)

    async def give_back(self, lane: str) -> None:
        await self._changed(lane, -1, 0)

    async def _changed(self, lane: str, by: int, most: int) -> bool:
        async with self._turns[lane]:
            key, mine = f"{subjects.IN_FLIGHT}.{lane}", self._mine[lane] + by
            while True:
                found = await newest(self._link, subjects.LEASE_BUCKET, key)
                others = {name: number for name, number in _read(found.body).items() if name != self._me}
                if by > 0 and mine + sum(others.values()) > most:
                    others = {name: others[name] for name in others if await self._lives(name)}
                    if mine + sum(others.values()) > most:
                        return False
                body = json.dumps(others | ({self._me: mine} if mine else {})).encode()
                if await replaced(self._link, subjects.LEASE_BUCKET, key, body, after=found.seq) is not None:
                    self._mine[lane] = mine
                    return True

    async def _lives(self, gateway: str) -> bool:
        now = monotonic()
        if now - self._lived.get(gateway, float("-inf")) > LIVES_FOR_S:
            if await has_left(self._link, gateway):
                return False
            self._lived[gateway] = now
        return True

    async def as_one(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do what only one gateway may do at a time, for as long as it takes, once no other does it."""
        while not await self._is_ours(f"_{name}"):  # noqa: ASYNC110 - another gives it back untold
            await asyncio.sleep(LOOK_S)
        await work()

    async def _is_ours(self, name: str) -> bool:
        try:
            return await self.take(name, 1)
        except TryAgain:
            return False


def _read(body: bytes) -> dict[str, int]:
    try:
        return _Stored.validate_json(body or b"{}")
    except ValidationError:  # no gateway wrote that
        return {}
