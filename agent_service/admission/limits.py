"""Limits shared by all runs: capacity, rates, budget, and quotas of callers. Journal entries update them.

A quota limits wakes per minute, open runs, and bytes and USD per day (UTC). All but the wakes survive restarts. A child
run is no wake of a caller, but spends its caller's money. Capacity is checked for new runs only.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from datetime import date, datetime, timedelta
from typing import Self

from agent_service.admission.callers import UNBOUNDED, QuotaSettings
from agent_service.admission.claims import LOCAL, LocalClaims
from agent_service.admission.rate_limits import MINUTE_S, Bucket, RateLimiter
from agent_service.admission.spending import Spending
from agent_service.core.waiting import Status
from agent_service.errors import OverQuota
from agent_service.run.journal import Commit
from agent_service.run.ports import Clock
from agent_service.store.messages import RemoteCommit, RunRow
from agent_service.store.sqlite import RunStore
from groundwork.service.errors import TryAgain
from schemas.values import dataclass

OPEN_RETRY_S = 30.0


@dataclass(slots=True)
class Quotas:
    clock: Clock
    spending: Spending
    of: Callable[[str], QuotaSettings]
    claims: LocalClaims = LOCAL
    _locks: defaultdict[str, asyncio.Lock] = field(init=False, default_factory=lambda: defaultdict(asyncio.Lock))
    """By caller, like the fields below."""
    _minutes: dict[str, Bucket] = field(init=False, default_factory=dict)
    _open: Counter[str] = field(init=False, default_factory=Counter)
    _entering: Counter[str] = field(init=False, default_factory=Counter)
    _arrived: Counter[str] = field(init=False, default_factory=Counter)
    """Entering runs that are already counted as open."""
    _day: date | None = field(init=False, default=None)
    _bytes: Counter[str] = field(init=False, default_factory=Counter)

    def recall(self, open_runs: Mapping[str, int], bytes_today: Mapping[str, int]) -> None:
        self._open, self._day, self._bytes = Counter(open_runs), self.clock.now().date(), Counter(bytes_today)

    @asynccontextmanager
    async def wake(self, caller: str, *, known: bool = False) -> AsyncIterator[None]:
        """Context in which a wake is accepted; a `known` one counts only against the rate. Raises OverQuota."""
        quota = self.of(caller)
        async with self._locks[caller]:
            if quota.wakes_per_minute is not None:
                while not await self._of_minute(caller, quota.wakes_per_minute):
                    await self.claims.wait()
                self._minute(caller, quota.wakes_per_minute).take(1, self._seconds())
            if not known:
                while not await self._take_place(caller, quota):
                    await self.claims.wait()
            self._entering[caller] += 1
        try:
            yield
        finally:
            self._entering[caller] -= 1
            self._arrived[caller] -= self._arrived[caller] > 0

    def committed(self, change: Commit) -> None:
        caller = change.state.brief.caller
        self._open[caller] += change.opened
        if change.before is None:
            self._of_today()[caller] += len(change.entry.event)
            self._arrived[caller] += 1

    def remote_commit(self, row: RunRow) -> None:
        if not row.opened:
            return
        self._open[row.caller] += row.opened
        if row.seq > 1:
            return
        self._of_today()[row.caller] += row.size
        if (most := self.of(row.caller).wakes_per_minute) is not None:
            self._minute(row.caller, most).take(1, self._seconds())

    async def _of_minute(self, caller: str, most: int) -> bool:
        minute, now = self._minute(caller, most), self._seconds()
        if (wait_s := minute.wait_s(1, now, behind=0)) > 0:
            raise OverQuota(f"{caller} has asked for {most} wakes within a minute", "wakes_per_minute", wait_s)
        return await self.claims.claim(f"wakes of {caller}", 1, left=minute.left(now))

    async def _take_place(self, caller: str, quota: QuotaSettings) -> bool:
        runs = self._open[caller] + self._entering[caller] - self._arrived[caller]
        taken = self._of_today()[caller]
        if quota.open_runs is not None and runs >= quota.open_runs:
            raise OverQuota(f"{caller} has {runs} runs that have not ended", "open_runs", OPEN_RETRY_S)
        if quota.bytes_per_day is not None and taken >= quota.bytes_per_day:
            raise OverQuota(f"{caller} has sent {taken} bytes today (UTC)", "bytes_per_day", self._left_of_today())
        if quota.usd_per_day is not None and (why := self.spending.reached(caller)):
            raise OverQuota(why, "usd_per_day", self._left_of_today())
        if quota.open_runs is None:
            return True
        return await self.claims.claim(f"open runs of {caller}", 1, left=quota.open_runs - runs)

    def _minute(self, caller: str, most: int) -> Bucket:
        minute = self._minutes.get(caller)
        if minute is None or minute.per_minute != most:
            minute = self._minutes[caller] = Bucket(most, self._seconds())
        return minute

    def _seconds(self) -> float:
        return self.clock.now().timestamp()

    def _of_today(self) -> Counter[str]:
        if self._day != (today := self.clock.now().date()):
            self._day, self._bytes = today, Counter()
        return self._bytes

    def _left_of_today(self) -> float:
        now = self.clock.now()
        tomorrow = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), now.tzinfo)
        return (tomorrow - now).total_seconds()


BUS_SHARE = 0.5
"""Share of the queue that starts from the bus may fill. Further starts wait in their stream, which refuses publishers
when full; the rest of the queue is left to callers of the API.
"""
QUEUED_S, FULL_S = 5.0, 30.0
"""Retry delays: runs begin all the time, but a person has to make room."""
KNOWN_WITHIN_S = 2.0
"""Time limit of a wake during trouble: a known wake is still answered."""


class Capacity:
    """`counts`: number of runs by status. At most `max_queued` runs wait to begin."""

    def __init__(self, counts: Callable[[], Awaitable[Mapping[Status, int]]], *, max_queued: int) -> None:
        self._counts = counts
        self._max_queued = max_queued
        self.trouble = ""
        """Reason why nothing new can be stored, and the remedy."""
        self._again_s = FULL_S
        self._wakes: set[asyncio.Timeout] = set()

    def say(self, trouble: str, *, again_s: float = FULL_S) -> None:
        """Called by `bus.capacity`. `again_s`: retry delay of callers."""
        self.trouble, self._again_s = trouble, again_s
        for wake in self._wakes if trouble else ():
            wake.reschedule(0)

    @asynccontextmanager
    async def unless_trouble(self) -> AsyncIterator[None]:
        """Gives up the work inside once there is trouble. Raises TryAgain; it may have been stored."""
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S if self.trouble else None) as wake:
                self._wakes.add(wake)
                try:
                    yield
                finally:
                    self._wakes.remove(wake)
        except TimeoutError as error:
            if not wake.expired():
                raise
            raise TryAgain(self.trouble or "the store does not answer", delay_s=self._again_s) from error

    async def check(self, *, by_bus: bool = False) -> None:
        """Raises TryAgain, with a retry delay."""
        if self.trouble:
            raise TryAgain(self.trouble, delay_s=self._again_s)
        most = max(1, int(self._max_queued * BUS_SHARE)) if by_bus else self._max_queued
        if (await self._counts()).get(Status.QUEUED, 0) >= most:
            raise TryAgain(f"{most} runs wait to begin already", delay_s=QUEUED_S)


@dataclass(slots=True)
class SharedLimits:
    rate_limiter: RateLimiter
    spending: Spending
    quotas: Quotas
    _recalled: int = field(default=0, init=False)
    """Entries up to this position are included in the recalled sums."""

    @classmethod
    def none(cls, clock: Clock, rate_limiter: RateLimiter) -> Self:
        spending = Spending(clock)
        return cls(rate_limiter, spending, Quotas(clock, spending, lambda _: UNBOUNDED))

    def committed(self, change: Commit) -> None:
        if self.rate_limiter.limited or self.rate_limiter.others:
            self.rate_limiter.committed(change)
        if change.paid_usd or self.spending.aside:
            self.spending.committed(change)
        if change.opened:
            self.quotas.committed(change)

    def remote_commit(self, one: RemoteCommit) -> None:
        self.rate_limiter.remote_commit(one.run_id, one.row)
        if one.position > self._recalled:
            self.spending.remote_commit(one.run_id, one.row)
            self.quotas.remote_commit(one.row)

    def recall(self, store: RunStore, *, aside: bool = False) -> None:
        """Loads today's usage. `aside`: including reserves of other agents' calls. Raises TryAgain."""
        before = None
        while before != (newest := store.newest()):  # so that all sums are of one entry
            before, today = newest, self.spending.today
            spent = store.spent(today)
            set_aside = store.reserved() if aside else {}
            self.spending.recall(today, {caller: usd for caller, (usd, _) in spent.items()}, set_aside)
            self.quotas.recall(store.open_runs(), {caller: size for caller, (_, size) in spent.items()})
        self._recalled = newest

    async def recall_calls(self, store: RunStore, clock: Clock) -> None:
        """Loads the calls of the last minute. Raises TryAgain."""
        if self.rate_limiter.limited:
            now = clock.now()
            self.rate_limiter.recall(await store.calls(now - timedelta(seconds=MINUTE_S)), now)
