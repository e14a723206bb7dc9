"""Limits on calls: per tool, in flight in a Ductile, jobs in its queue, and a circuit breaker per plugin.

A call that is refused here has not begun: TryAgain says when to try again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from ductile_gateway.calls.places import NoPlace, Places
from ductile_gateway.ports import Clock
from groundwork.service.errors import TryAgain

FULL = "as many calls of {tool} are running as may"
LANE_COME_BACK_S = 0.25
LOOK_AGAIN_S = 0.1
QUEUE_COME_BACK_S = 5.0
QUEUE_FRESH_FOR = timedelta(seconds=2)

log = logging.getLogger(__name__)


class Permits(Protocol):
    """What the gateways of a bus carry out together, by lane. Both raise TryAgain."""

    async def take(self, lane: str, most: int) -> bool: ...

    async def give_back(self, lane: str) -> None: ...


class Lanes:
    """Slots: `most` here, and per tool as `widths` says, with `permits` over all gateways. Other tools pass freely.
    `room`: how many calls may wait in hand; what comes beyond is given back to the bus."""

    def __init__(self, widths: Mapping[str, int], *, most: int, room: int, permits: Permits | None = None) -> None:
        self._widths = dict(widths)
        self._places = Places(most, widths, room=room)
        self._permits = permits
        self._given_back: set[asyncio.Task[None]] = set()

    def also(self, widths: Mapping[str, int]) -> None:
        for tool, width in widths.items():
            self._widths[tool] = width
            self._places.allow(tool, width)

    @contextlib.asynccontextmanager
    async def enter(self, run_id: str, tool: str) -> AsyncIterator[None]:
        if tool not in self._widths:
            yield
            return
        try:
            await self._places.come(run_id, tool)
        except NoPlace:
            raise TryAgain(f"{FULL.format(tool=tool)}, and others wait", LANE_COME_BACK_S) from None
        try:
            async with self._permitted(tool):
                yield
        finally:
            self._places.go(run_id, tool)

    @contextlib.asynccontextmanager
    async def _permitted(self, tool: str) -> AsyncIterator[None]:
        while self._permits and not await self._permits.take(tool, self._widths[tool]):
            if self._places.closed:
                raise TryAgain(FULL.format(tool=tool), LANE_COME_BACK_S)
            await asyncio.sleep(LOOK_AGAIN_S)
        try:
            yield
        finally:
            if self._permits:
                task = asyncio.create_task(self._give_back(self._permits, tool))
                self._given_back.add(task)
                task.add_done_callback(self._given_back.discard)

    async def _give_back(self, permits: Permits, tool: str) -> None:
        while True:
            try:
                return await permits.give_back(tool)
            except TryAgain as error:
                await asyncio.sleep(error.delay_s)

    def close(self) -> None:
        self._places.close()


class InFlight:
    """At most `most` new calls at a time. Calls that an earlier process began count too, and never wait."""

    def __init__(self, most: int) -> None:
        self._places = Places(most)

    @contextlib.asynccontextmanager
    async def new(self, run_id: str, *, within_s: float) -> AsyncIterator[bool]:
        if not await self._come(run_id, within_s):
            yield False
            return
        try:
            yield True
        finally:
            self._places.go(run_id)

    @contextlib.asynccontextmanager
    async def begun_before(self, run_id: str) -> AsyncIterator[None]:
        self._places.come_anyway(run_id)
        try:
            yield
        finally:
            self._places.go(run_id)

    async def _come(self, run_id: str, within_s: float) -> bool:
        if within_s <= 0:
            return False
        try:
            async with asyncio.timeout(within_s):
                await self._places.come(run_id)
        except TimeoutError:
            return False
        return True


class QueueLimit:
    """Backpressure of a Ductile: beyond `most` jobs in its queue no call is made; None for no limit. `depth` returns
    None where it cannot be seen, which holds nothing up. One look counts for two seconds."""

    def __init__(self, depth: Callable[[], Awaitable[int | None]], *, most: int | None, clock: Clock) -> None:
        self._look = depth
        self._most = most
        self._clock = clock
        self._looking = asyncio.Lock()
        self._depth: int | None = None
        self._fresh_until: datetime | None = None
        self._is_full = False

    async def check(self) -> None:
        if self._most is None:
            return
        async with self._looking:
            if self._fresh_until is None or self._clock.now() >= self._fresh_until:
                self._depth = await self._look()
                self._fresh_until = self._clock.now() + QUEUE_FRESH_FOR
        if (depth := self._depth) is None:
            return
        self._note(depth, is_full=depth > self._most)
        if self._is_full:
            raise TryAgain(f"Ductile has {depth} jobs waiting or running, more than {self._most}", QUEUE_COME_BACK_S)

    def _note(self, depth: int, *, is_full: bool) -> None:
        if is_full and not self._is_full:
            log.warning("Ductile's queue is too long: new calls wait", extra={"jobs": depth, "most": self._most})
        elif self._is_full and not is_full:
            log.info("Ductile's queue is short enough again: calls are made", extra={"jobs": depth})
        self._is_full = is_full


@dataclass(slots=True)
class _Circuit:
    failures: int = 0
    open_until: datetime | None = None


class Breaker:
    """A circuit breaker per plugin: `after` failures in a row open it for `open_for`. Only failures of the way to the
    plugin count (no connection, no answer, 5xx), never a tool's own."""

    def __init__(self, after: int, open_for: timedelta) -> None:
        self._after = after
        self._open_for = open_for
        self._circuits: dict[str, _Circuit] = {}

    def wait_s(self, name: str, now: datetime) -> float:
        circuit = self._circuits.get(name)
        until = circuit.open_until if circuit else None
        return max(0.0, (until - now).total_seconds()) if until else 0.0

    def left_alone(self, now: datetime) -> dict[str, float]:
        return {name: wait_s for name in self._circuits if (wait_s := self.wait_s(name, now))}

    def failed(self, name: str, now: datetime) -> bool:
        circuit = self._circuits.setdefault(name, _Circuit())
        circuit.failures += 1
        if circuit.failures < self._after:
            return False
        circuit.open_until = now + self._open_for
        return circuit.failures == self._after

    def succeeded(self, name: str) -> None:
        self._circuits.pop(name, None)
