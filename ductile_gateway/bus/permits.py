"""Permits: how many calls of one lane the gateways of a bus make at the same time.

Each lane is one value of a bucket, changed by compare-and-swap. It says of each gateway how many permits it holds, and
since when it waits for more. A gateway keeps its permits while it has calls for them, so a call under load costs the
bus nothing. A free permit goes to the waiting gateway that holds fewest, then to the one that has waited longest. A
gateway that holds more than one that waits cedes a permit as a call ends, but not before it has used it for SLICE_S.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import field
from typing import NamedTuple

import nats.errors
from nats.aio.msg import Msg
from pydantic import TypeAdapter, ValidationError

from ductile_gateway.bus.ownership import has_left
from groundwork.nats.buckets import read_value, replace_value
from groundwork.nats.lease import Lease
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from groundwork.service.machine import monotonic, set_within
from schemas import subjects
from schemas.values import dataclass

SLICE_S = 0.25
IDLE_S = 1.0
"""Time for which an idle permit is kept if no other gateway waits."""
LOOK_S = 2.0
"""The value is read again after this time: a change may not have been heard, and a gateway may have died."""
LIVES_FOR_S = 2.0
"""Time for which a gateway counts as alive after a check."""
COME_BACK_S = 0.25


class _Share(NamedTuple):
    """`since`: sequence of the bucket at which the gateway began to wait; 0: it does not wait."""

    held: int = 0
    since: int = 0


_Stored = TypeAdapter(dict[str, _Share], config={"defer_build": True})


@dataclass(slots=True, eq=False)
class _Lane:
    """`held` is never more than the bucket says, `used` never more than `held`."""

    most: int = 0
    held: int = 0
    used: int = 0
    since: int = 0
    granted_at: float = 0.0
    used_at: float = 0.0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    others: Mapping[str, _Share] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def wanted(self) -> int:
        return self.used + len(self.waiting)

    @property
    def free(self) -> int:
        return self.most - sum(other.held for other in self.others.values())

    def let_in(self) -> None:
        while self.waiting and self.used < self.held:
            first = self.waiting.popleft()
            if not first.done():
                first.set_result(None)
                self.used += 1

    def goes_on(self) -> None:
        """Uses a permit that became free for the next call, or leaves it to another gateway."""
        is_owed = any(other.since and other.held < self.held for other in self.others.values())
        if is_owed and monotonic() - self.granted_at >= SLICE_S:
            self.since = 0
        else:
            self.let_in()

    def fair(self, since: int) -> int:
        """Number of permits that this gateway may hold now."""
        rivals = [other for other in self.others.values() if other.since]
        if not rivals and monotonic() - self.used_at < IDLE_S:
            return max(self.used, min(max(self.held, self.wanted), self.free))
        fair = self.used
        while fair < min(self.wanted, self.free) and not any(rival < (fair, since) for rival in rivals):
            fair += 1
        return fair


@contextlib.asynccontextmanager
async def open_permits(link: NatsLink, me: str, lease: Lease) -> AsyncIterator["NatsPermits"]:
    """The permits of gateway `me`, which holds `lease`. At the end they stay as they are: they are free once the lease
    is. Raises TryAgain."""
    async with asyncio.TaskGroup() as group:
        permits = NatsPermits(link, me, lease, group)
        changes = await link.subscribe(f"$KV.{subjects.LEASE_BUCKET}.{subjects.IN_FLIGHT}.*", permits.hear)
        try:
            yield permits
        finally:
            with contextlib.suppress(nats.errors.Error, OSError):
                await changes.unsubscribe()
            for task in permits.keeping:
                task.cancel()


@dataclass(eq=False)
class NatsPermits:
    """`keeping`: tasks of lanes, in `group`. `_lived`: when a gateway was seen alive, on the monotonic clock."""

    link: NatsLink
    me: str
    lease: Lease
    group: asyncio.TaskGroup
    keeping: list[asyncio.Task[None]] = field(default_factory=list)
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _lived: dict[str, float] = field(default_factory=dict)

    async def acquire(self, name: str, most: int) -> None:
        """Waits for a permit of the lane; `most` are held by all gateways. Raises TryAgain while closing."""
        lane = self._lane(name)
        lane.most = most
        let_in = asyncio.get_running_loop().create_future()
        lane.waiting.append(let_in)
        lane.goes_on()
        if not let_in.done():
            lane.changed.set()
        try:
            await let_in
        except BaseException:
            if let_in in lane.waiting:
                lane.waiting.remove(let_in)
            elif not let_in.cancelled() and let_in.exception() is None:  # it got a permit at the same moment
                self.release(name)
            lane.changed.set()
            raise

    def release(self, name: str) -> None:
        lane = self._lanes[name]
        lane.used, lane.used_at = lane.used - 1, monotonic()
        lane.goes_on()
        lane.changed.set()

    async def as_one(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do what only one gateway may do at a time, once no other does it."""
        while True:
            with contextlib.suppress(TryAgain):
                await self.acquire(lane := f"_{name}", 1)
                try:
                    return await work()
                finally:
                    self.release(lane)
            await asyncio.sleep(LOOK_S)

    def close(self) -> None:
        for lane in self._lanes.values():
            while lane.waiting:
                if not (first := lane.waiting.popleft()).done():
                    first.set_exception(TryAgain("the gateway is closing", COME_BACK_S))

    async def hear(self, change: Msg) -> None:
        # Also of a lane without calls here: the bucket may know of permits from before a restart.
        self._lane(change.subject.rpartition(".")[2]).changed.set()

    def _lane(self, name: str) -> _Lane:
        if name not in self._lanes:
            lane = self._lanes[name] = _Lane()
            self.keeping.append(self.group.create_task(self._keep(f"{subjects.IN_FLIGHT}.{name}", lane)))
        return self._lanes[name]

    async def _keep(self, key: str, lane: _Lane) -> None:
        while True:
            await set_within(lane.changed, LOOK_S if lane.wanted or lane.held else None)
            lane.changed.clear()
            try:
                await self._agree(key, lane)
            except TryAgain as error:
                lane.changed.set()  # permits that were to be given back are held in the bucket
                await asyncio.sleep(error.delay_s)

    async def _agree(self, key: str, lane: _Lane) -> None:
        """Hold as many permits as is fair, and say whether more are waited for."""
        found = await read_value(self.link, subjects.LEASE_BUCKET, key)
        try:
            shares = _Stored.validate_json(found.body or b"{}")
        except ValidationError:  # no gateway wrote that
            shares = {}
        before = shares.pop(self.me, _Share())
        lane.others = shares
        if lane.wanted > lane.free or (lane.waiting and any(share.since for share in shares.values())):
            lane.others = {name: share for name, share in shares.items() if await self._lives(name)}
        since = lane.since or found.seq or 1
        fair = lane.fair(since)
        share = _Share(fair, since if lane.wanted > fair else 0)
        if share != before:
            lane.held = min(lane.held, fair)
            value = {**lane.others, self.me: share} if any(share) else lane.others
            body = json.dumps(value).encode()
            if await replace_value(self.link, subjects.LEASE_BUCKET, key, body, after=found.seq) is None:
                lane.changed.set()
                return
        if fair > before.held:
            lane.granted_at = monotonic()
        lane.held, lane.since = share
        lane.let_in()

    async def _lives(self, gateway: str) -> bool:
        now = monotonic()
        if now - self._lived.get(gateway, float("-inf")) > LIVES_FOR_S:
            if await has_left(self.link, gateway, self.lease):
                return False
            self._lived[gateway] = now
        return True
