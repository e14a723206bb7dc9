"""Concurrency slots, fair between runs: in all, and per tool.

The next slot goes to the run with the fewest in its lane, then the fewest of all, then to the one that has waited
longest. Where the waiting room is full, the run with most waiting there makes room for one that has fewer. A call that
gets none has not begun: TryAgain says when to try again.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from groundwork.service.errors import TryAgain, patiently

FULL = "as many calls of {tool} are running as may"
LANE_COME_BACK_S = 0.25
LOOK_AGAIN_S = 0.1


class Permits(Protocol):
    """What the gateways of a bus carry out together, by lane. Both raise TryAgain."""

    async def take(self, lane: str, most: int) -> bool: ...

    async def give_back(self, lane: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    lane: str
    run_id: str
    since: int
    let_in: asyncio.Future[None]


class Lanes:
    """Slots: `most` here, and per tool as `widths` says, with `permits` over all gateways. Other tools pass freely.
    `room`: how many calls may wait in hand, None for any; what comes beyond is given back to the bus."""

    def __init__(
        self, widths: Mapping[str, int], *, most: int, room: int | None = None, permits: Permits | None = None
    ) -> None:
        self._widths = dict(widths)
        self._most = most
        self._room = room
        self._permits = permits
        self._given_back: set[asyncio.Task[None]] = set()
        self._there: Counter[tuple[str, str]] = Counter()
        self._waiting: list[_Waiting] = []
        self._ended: dict[str, int] = {}
        """When a run of those that are here or wait gave a slot back last, in ticks."""
        self._ticks = count()

    def also(self, widths: Mapping[str, int]) -> None:
        """From now on. Those that are there stay."""
        self._widths |= widths
        self._let_in()

    @contextlib.asynccontextmanager
    async def enter(self, run_id: str, tool: str) -> AsyncIterator[None]:
        if tool not in self._widths:
            yield
            return
        await self.come(run_id, tool)
        try:
            async with self._permitted(tool):
                yield
        finally:
            self.go(run_id, tool)

    async def come(self, run_id: str, lane: str) -> None:
        if self._is_free(lane):
            self._there[lane, run_id] += 1
            return
        self._make_room(run_id, lane)
        me = _Waiting(lane, run_id, next(self._ticks), asyncio.get_running_loop().create_future())
        self._waiting.append(me)
        try:
            await me.let_in
        except asyncio.CancelledError:
            if me in self._waiting:
                self._waiting.remove(me)
            elif not me.let_in.cancelled() and me.let_in.exception() is None:  # it was let in at the same moment
                self.go(run_id, lane)
            raise

    def go(self, run_id: str, lane: str) -> None:
        self._there[lane, run_id] -= 1
        self._ended[run_id] = next(self._ticks)
        self._let_in()
        self._there = +self._there
        known = {run for _, run in self._there} | {one.run_id for one in self._waiting}
        self._ended = {run: tick for run, tick in self._ended.items() if run in known}

    def there(self, lane: str) -> int:
        return sum(number for (its_lane, _), number in self._there.items() if its_lane == lane)

    def close(self) -> None:
        self._most = self._room = 0
        for one in list(self._waiting):
            self._refuse(one)

    def _is_free(self, lane: str) -> bool:
        return self._there.total() < self._most and self.there(lane) < self._widths.get(lane, self._most)

    def _let_in(self) -> None:
        while free := [one for one in self._waiting if self._is_free(one.lane)]:
            first = min(free, key=self._order)
            self._waiting.remove(first)
            if not first.let_in.cancelled():
                self._there[first.lane, first.run_id] += 1
                first.let_in.set_result(None)

    def _order(self, one: _Waiting) -> tuple[int, int, int, int]:
        of_run = sum(number for (_, run_id), number in self._there.items() if run_id == one.run_id)
        waits_since = max(one.since, self._ended.get(one.run_id, 0))
        return self._there[one.lane, one.run_id], of_run, waits_since, one.since

    def _make_room(self, run_id: str, lane: str) -> None:
        if self._room is None or len(self._waiting) < self._room:
            return
        waiting = Counter(one.run_id for one in self._waiting)
        greedy, most = max(waiting.items(), key=lambda of_run: of_run[1], default=(run_id, 0))
        if most <= waiting[run_id] + 1:
            raise _full(lane)
        self._refuse(next(one for one in reversed(self._waiting) if one.run_id == greedy))

    def _refuse(self, one: _Waiting) -> None:
        self._waiting.remove(one)
        if not one.let_in.cancelled():
            one.let_in.set_exception(_full(one.lane))

    @contextlib.asynccontextmanager
    async def _permitted(self, tool: str) -> AsyncIterator[None]:
        while self._permits and not await self._permits.take(tool, self._widths[tool]):
            if not self._most:
                raise _full(tool)
            await asyncio.sleep(LOOK_AGAIN_S)
        try:
            yield
        finally:
            if self._permits:
                task = asyncio.create_task(patiently(partial(self._permits.give_back, tool)))
                self._given_back.add(task)
                task.add_done_callback(self._given_back.discard)


def _full(tool: str) -> TryAgain:
    return TryAgain(f"{FULL.format(tool=tool)}, and others wait", LANE_COME_BACK_S)
