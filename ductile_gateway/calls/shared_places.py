"""Slots of a tool that hold over several gateways: each lets in as many calls as the tool's record gives it.

    calls come ─▶ needs ─▶ record, by compare-and-swap: slots are dealt (shares) ─▶ so many are let in here

A gateway keeps its slots until another needs one. No more is let in than the newest stored record gives us; a slot is
closed here before it is given back. A writer of a record deals out all free slots, so that one given back reaches the
next in one write. A gateway that is gone has no share.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NoReturn, Protocol

from ductile_gateway.calls.places import Places
from groundwork.service.errors import TryAgain
from schemas.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class Share:
    """Of one gateway. `needs` includes those that it `has`. `turn`: when it was last given one, counted in places
    given."""

    has: int = 0
    needs: int = 0
    turn: int = 0

    @property
    def lacks(self) -> bool:
        return self.has < self.needs

    @property
    def rank(self) -> tuple[int, int]:
        return self.has, self.turn


Shares = Mapping[str, Share]


def dealt(shares: Shares, width: int) -> dict[str, Share]:
    """The shares after the free ones of `width` places were dealt; gateways that neither have nor need any are left
    out."""
    given = dict(shares)
    turn = max((share.turn for share in given.values()), default=0)
    free = width - sum(share.has for share in given.values())
    while free > 0 and (name := _next(given)) is not None:
        turn, free = turn + 1, free - 1
        given[name] = replace(given[name], has=given[name].has + 1, turn=turn)
    return {name: share for name, share in given.items() if share.has or share.needs}


def _next(shares: Shares) -> str | None:
    lacking = (name for name, share in shares.items() if share.lacks)
    return min(lacking, key=lambda name: (shares[name].rank, name), default=None)


def deserved(others: Shares, mine: Share) -> bool:
    after = replace(mine, has=mine.has - 1)
    return any(share.lacks and share.rank < after.rank for share in others.values())


SAY_AGAIN_S = 2.0
"""Who lacks a place says so again: what is said on the bus once may not be heard."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    shares: Shares = field(default_factory=dict)
    seq: int = 0


class Records(Protocol):
    async def look(self, tool: str) -> Record:
        """The newest."""

    async def swap(self, tool: str, shares: Shares, after: int) -> int | None:
        """Store these where `after` is the newest; returns what names them now, None where another was faster."""


@dataclass(slots=True)
class _Lane:
    width: int
    known: Record = field(default_factory=Record)
    stale: bool = True
    closed: int = 0
    """Places that the record still gives us, and that we let nobody into any more."""
    said_at: float = float("-inf")
    busy: bool = False


class SharedPlaces:
    """Widens and narrows the lanes of `places`; `widths` are over all gateways. `me` is this one."""

    def __init__(
        self, places: Places, widths: Mapping[str, int], records: Records, *, me: str, is_gone: Callable[[str], bool]
    ) -> None:
        self._places = places
        self._records = records
        self._me = me
        self._is_gone = is_gone
        self._lanes = {tool: _Lane(width) for tool, width in widths.items()}
        self._woken = asyncio.Event()
        places.on_change = self._woken.set

    def heard(self, tool: str) -> None:
        if lane := self._lanes.get(tool):
            lane.stale = True
            self._woken.set()

    def heard_all(self) -> None:
        for tool in self._lanes:
            self.heard(tool)

    def before_going(self, tool: str) -> None:
        """A call is about to give its place back: here to the next, unless that is another gateway's."""
        lane = self._lanes.get(tool)
        if lane and deserved(self._others(lane), self._mine(tool, lane)):
            lane.closed = max(0, self._recorded(lane).has - self._places.there(tool) + 1)
            self._open(tool, lane)

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                for tool, lane in self._lanes.items():
                    if not lane.busy and self._is_due(tool, lane):
                        lane.busy = True
                        group.create_task(self._settle(tool, lane))
                await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(SAY_AGAIN_S / 2):
                await self._woken.wait()
        except TimeoutError:
            return

    def _is_due(self, tool: str, lane: _Lane) -> bool:
        recorded, needs = self._recorded(lane), self._needs(tool, lane)
        if lane.stale and (recorded.has or needs or not lane.known.seq):
            return True
        if recorded.has > self._places.there(tool) and self._others_lack(lane):
            return True
        if needs > recorded.has:
            return needs > recorded.needs or self._clock() - lane.said_at > SAY_AGAIN_S
        return recorded.lacks

    async def _settle(self, tool: str, lane: _Lane) -> None:
        try:
            if lane.stale:
                lane.stale = False
                lane.known = await self._records.look(tool)
                self._open(tool, lane)  # what we were given is used before anything is given back
            await self._say(tool, lane)
        except TryAgain as error:
            lane.stale = True
            log.debug("places are not dealt now", extra={"tool": tool, "why": str(error)})
            await asyncio.sleep(error.delay_s)
        finally:
            lane.busy = False
            self._woken.set()

    async def _say(self, tool: str, lane: _Lane) -> None:
        mine, others = self._mine(tool, lane), self._others(lane)
        shares = dealt({**others, self._me: mine}, lane.width)
        is_new = shares != lane.known.shares or (mine.lacks and self._clock() - lane.said_at > SAY_AGAIN_S)
        if is_new:
            lane.closed = closed = max(0, self._recorded(lane).has - mine.has)
            self._open(tool, lane)
            lane.said_at = self._clock()
            seq = await self._records.swap(tool, shares, lane.known.seq)
            if seq is None:
                lane.stale = True
                return
            lane.known, lane.closed = Record(shares, seq), max(0, lane.closed - closed)
        else:
            lane.closed = 0
        self._open(tool, lane)

    def _open(self, tool: str, lane: _Lane) -> None:
        self._places.allow(tool, max(0, self._recorded(lane).has - lane.closed))

    def _recorded(self, lane: _Lane) -> Share:
        return lane.known.shares.get(self._me, Share())

    def _mine(self, tool: str, lane: _Lane) -> Share:
        recorded, there = self._recorded(lane), self._places.there(tool)
        kept = there if self._others_lack(lane) else max(there, recorded.has)
        return replace(recorded, has=kept, needs=self._needs(tool, lane))

    def _needs(self, tool: str, lane: _Lane) -> int:
        return min(self._places.wanted(tool), lane.width)

    def _others(self, lane: _Lane) -> Shares:
        shares = lane.known.shares
        return {name: shares[name] for name in shares if name != self._me and not self._is_gone(name)}

    def _others_lack(self, lane: _Lane) -> bool:
        return any(share.lacks for share in self._others(lane).values())

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()
