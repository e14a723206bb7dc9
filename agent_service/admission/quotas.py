"""Quotas of one caller: wakes in a minute, runs at a time, bytes and money in a day (UTC).

A caller is a token of the API, or a sender as NATS names it. The day's use and the open runs survive restarts; the
minute does not. A child run is nobody's wake, and spends its caller's money. Processes count each other's wakes.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from itertools import count

from agent_service.admission.callers import QuotaSettings
from agent_service.admission.rate_limits import Bucket
from agent_service.admission.shares import ALONE, Company, Share
from agent_service.admission.spending import Spending
from agent_service.errors import OverQuota
from agent_service.run.moments import Elsewhere, Moment
from agent_service.run.ports import Clock

OPEN_RETRY_S = 30.0


QuotaOf = Callable[[str], QuotaSettings]


class Quotas:
    def __init__(self, clock: Clock, spending: Spending, of: QuotaOf, *, company: Company = ALONE) -> None:
        self._clock = clock
        self._company = company
        self._shares: defaultdict[str, Share] = defaultdict(lambda: Share(company))
        """By caller: of its wakes."""
        self._numbers = count()
        self._spending = spending
        self._of = of
        self._minutes: dict[str, Bucket] = {}
        self._open: Counter[str] = Counter()
        self._entering: Counter[str] = Counter()
        self._arrived: Counter[str] = Counter()
        """Of those that enter, how many are among the open runs already."""
        self._day: date | None = None
        self._bytes: Counter[str] = Counter()

    def recall(self, open_runs: Mapping[str, int], bytes_today: Mapping[str, int]) -> None:
        self._open, self._day, self._bytes = Counter(open_runs), self._clock.now().date(), Counter(bytes_today)

    @asynccontextmanager
    async def wake(self, caller: str, *, known: bool = False) -> AsyncIterator[None]:
        """Inside, a wake is accepted; one that is `known` only counts as a request. Raises OverQuota."""
        quota = self._of(caller)
        if quota.wakes_per_minute is not None:
            await self._take_one(caller, quota.wakes_per_minute)
        if not known:
            while not self._check(caller, quota):
                await self._company.news()
        self._entering[caller] += 1
        self._shares[caller].take(wake := str(next(self._numbers)), 1)
        try:
            yield
        finally:
            self._entered(caller, wake)

    def committed(self, moment: Moment) -> None:
        caller = moment.after.brief.caller
        self._open[caller] += moment.opened
        if moment.before is None:
            self._of_today()[caller] += len(moment.entry.event)
            self._arrived[caller] += 1

    def elsewhere(self, one: Elsewhere) -> None:
        if not one.opened:
            return
        self._open[one.caller] += one.opened
        if one.entry.seq > 1:
            return
        self._of_today()[one.caller] += len(one.entry.event)
        if (most := self._of(one.caller).wakes_per_minute) is not None:
            self._minute(one.caller, most).take(1, self._seconds())

    async def _take_one(self, caller: str, most: int) -> None:
        while not self._of_minute(caller, most):
            await self._company.news()
        self._minute(caller, most).take(1, self._seconds())

    def _of_minute(self, caller: str, most: int) -> bool:
        minute, now = self._minute(caller, most), self._seconds()
        if (wait_s := minute.wait_s(1, now, behind=0)) > 0:
            raise OverQuota(f"{caller} has asked for {most} wakes within a minute", "wakes_per_minute", wait_s)
        return self._shares[caller].allows(1, left=minute.left(now))

    def _check(self, caller: str, quota: QuotaSettings) -> bool:
        runs = self._open[caller] + self._entering[caller] - self._arrived[caller]
        taken = self._of_today()[caller]
        if quota.open_runs is not None and runs >= quota.open_runs:
            raise OverQuota(f"{caller} has {runs} runs that have not ended", "open_runs", OPEN_RETRY_S)
        if quota.bytes_per_day is not None and taken >= quota.bytes_per_day:
            raise OverQuota(f"{caller} has sent {taken} bytes today (UTC)", "bytes_per_day", self._left_of_today())
        if quota.usd_per_day is not None and (why := self._spending.reached_by(caller)):
            raise OverQuota(why, "usd_per_day", self._left_of_today())
        return quota.open_runs is None or self._shares[caller].allows(1, left=quota.open_runs - runs)

    def _minute(self, caller: str, most: int) -> Bucket:
        minute = self._minutes.get(caller)
        if minute is None or minute.per_minute != most:
            minute = self._minutes[caller] = Bucket(most, self._seconds())
        return minute

    def _seconds(self) -> float:
        return self._clock.now().timestamp()

    def _entered(self, caller: str, wake: str) -> None:
        self._entering[caller] -= 1
        self._arrived[caller] -= self._arrived[caller] > 0
        self._shares[caller].heard(wake)

    def _of_today(self) -> Counter[str]:
        if self._day != (today := self._clock.now().date()):
            self._day, self._bytes = today, Counter()
        return self._bytes

    def _left_of_today(self) -> float:
        now = self._clock.now()
        tomorrow = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), now.tzinfo)
        return (tomorrow - now).total_seconds()
