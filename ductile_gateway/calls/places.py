"""Concurrency slots, fair between runs.

The next slot goes to the run with the fewest in its lane, then the fewest of all, then to the one that has waited
longest. Where the waiting room is full, the run with most waiting there makes room for one that has fewer.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

Key = TypeVar("Key")


class NoPlace(Exception):
    """No more may wait: come again."""


@dataclass(slots=True, eq=False)
class _Waiting:
    lane: str
    run_id: str
    since: int
    let_in: asyncio.Future[None]


class Places:
    """`total` of them; in each lane of `widths` at most as many at a time. `room`: how many may wait, None for any."""

    def __init__(self, total: int, widths: Mapping[str, int] | None = None, *, room: int | None = None) -> None:
        self._total = total
        self._widths = dict(widths or {})
        self._room = room
        self._taken = 0
        self._there: Counter[tuple[str, str]] = Counter()
        self._in_lane: Counter[str] = Counter()
        self._of_run: Counter[str] = Counter()
        self._queues: dict[tuple[str, str], deque[_Waiting]] = {}
        self._waiting_of: Counter[str] = Counter()
        self._ended: dict[str, int] = {}
        self._ticks = count()

    async def come(self, run_id: str, lane: str = "") -> None:
        if self._is_free(lane):
            self.come_anyway(run_id, lane)
            return
        await self._wait(run_id, lane)

    def come_anyway(self, run_id: str, lane: str = "") -> None:
        """Takes a place even if there is none: no other call gets one then until enough have been given back."""
        self._taken += 1
        self._there[lane, run_id] += 1
        self._in_lane[lane] += 1
        self._of_run[run_id] += 1

    def go(self, run_id: str, lane: str = "") -> None:
        self._taken -= 1
        _take_one(self._there, (lane, run_id))
        _take_one(self._in_lane, lane)
        _take_one(self._of_run, run_id)
        self._ended[run_id] = next(self._ticks)
        self._let_in()
        self._forget_run(run_id)

    def allow(self, lane: str, width: int) -> None:
        """As many as `width` at a time in the lane, from now on. Those that are there stay."""
        self._widths[lane] = width
        self._let_in()

    def there(self, lane: str) -> int:
        return self._in_lane[lane]

    @property
    def closed(self) -> bool:
        return not self._total

    def close(self) -> None:
        self._total = self._room = 0
        for one in [one for queue in self._queues.values() for one in queue]:
            self._refuse(one)

    def _is_free(self, lane: str) -> bool:
        return self._taken < self._total and self._in_lane[lane] < self._widths.get(lane, self._total)

    def _let_in(self) -> None:
        while next_one := self._next():
            self._forget(next_one)
            if not next_one.let_in.cancelled():
                self.come_anyway(next_one.run_id, next_one.lane)
                next_one.let_in.set_result(None)

    async def _wait(self, run_id: str, lane: str) -> None:
        self._make_room(run_id)
        me = _Waiting(lane, run_id, next(self._ticks), asyncio.get_running_loop().create_future())
        self._queues.setdefault((lane, run_id), deque()).append(me)
        self._waiting_of[run_id] += 1
        try:
            await me.let_in
        except asyncio.CancelledError:
            if me.let_in.cancelled():
                self._forget(me)
            elif me.let_in.exception() is None:  # it was let in at the same moment
                self.go(run_id, lane)
            raise

    def _make_room(self, run_id: str) -> None:
        if self._room is None or self._waiting_of.total() < self._room:
            return
        greedy, waiting = max(self._waiting_of.items(), key=lambda of_run: of_run[1], default=(run_id, 0))
        if waiting <= self._waiting_of[run_id] + 1:
            raise NoPlace
        latest = max((queue[-1] for queue in self._queues_of(greedy)), key=lambda one: one.since)
        self._refuse(latest)

    def _refuse(self, one: _Waiting) -> None:
        self._forget(one)
        if not one.let_in.cancelled():
            one.let_in.set_exception(NoPlace())

    def _queues_of(self, run_id: str) -> list[deque[_Waiting]]:
        return [queue for (_, whose), queue in self._queues.items() if whose == run_id]

    def _next(self) -> _Waiting | None:
        heads = (queue[0] for queue in self._queues.values())
        return min((head for head in heads if self._is_free(head.lane)), key=self._order, default=None)

    def _order(self, one: _Waiting) -> tuple[int, int, int, int]:
        waits_since = max(one.since, self._ended.get(one.run_id, 0))
        return self._there[one.lane, one.run_id], self._of_run[one.run_id], waits_since, one.since

    def _forget(self, one: _Waiting) -> None:
        """A call that was cancelled may have been forgotten before it hears of that itself."""
        queue = self._queues.get((one.lane, one.run_id))
        if queue is None or one not in queue:
            return
        queue.remove(one)
        if not queue:
            del self._queues[one.lane, one.run_id]
        _take_one(self._waiting_of, one.run_id)
        self._forget_run(one.run_id)

    def _forget_run(self, run_id: str) -> None:
        if run_id not in self._of_run and run_id not in self._waiting_of:
            self._ended.pop(run_id, None)


def _take_one(counter: Counter[Key], key: Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
