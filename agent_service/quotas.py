"""What one caller may ask for: so many wakes in a minute, runs at a time, bytes and money in a day (UTC).

Rules: a caller is a token of the API, or a sender as far as NATS names it. Who is over its quota is told which and
until when, and nothing is stored; others notice nothing. What was asked for today, and how many runs are open, is known
through restarts; the minute begins anew. A run that a run started is nobody's wake, and spends its caller's money.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Self

from agent_service.callers import UNBOUNDED, Quota, opened
from agent_service.errors import OverQuota
from agent_service.identity import SystemClock
from agent_service.moments import Moment
from agent_service.pace import Bucket
from agent_service.ports import Clock
from agent_service.spending import Spending

OPEN_RETRY_S = 30.0


QuotaOf = Callable[[str], Quota]


class Quotas:
    """`of` says which quota a caller has."""

    def __init__(self, clock: Clock, spending: Spending, of: QuotaOf) -> None:
        self._clock = clock
        self._spending = spending
        self._of = of
        self._minutes: dict[str, Bucket] = {}
        self._open: Counter[str] = Counter()
        self._entering: Counter[str] = Counter()
        self._arrived: Counter[str] = Counter()
        """Of those that enter, how many are among the open runs already."""
        self._day: date | None = None
        self._bytes: Counter[str] = Counter()

    @classmethod
    def none(cls) -> Self:
        """For whom nobody has a quota."""
        clock = SystemClock()
        return cls(clock, Spending(clock), lambda _: UNBOUNDED)

    def recall(self, open_runs: Mapping[str, int], bytes_today: Mapping[str, int]) -> None:
        """What the store says: how many runs of each caller are open, and what each asked for today."""
        self._open, self._day, self._bytes = Counter(open_runs), self._clock.now().date(), Counter(bytes_today)

    @contextmanager
    def wake(self, caller: str, *, known: bool = False) -> Iterator[None]:
        """Inside, a wake of the caller is accepted; one that is `known` already only counts as a request. Raises
        OverQuota."""
        quota = self._of(caller)
        if quota.wakes_per_minute is not None:
            self._take_one(caller, quota.wakes_per_minute)
        if not known:
            self._check(caller, quota)
        self._entering[caller] += 1
        try:
            yield
        finally:
            self._entered(caller)

    def committed(self, moment: Moment) -> None:
        """What an entry opens, or ends."""
        more, caller = opened(moment.before, moment.after), moment.after.brief.caller
        if more:
            self._open[caller] += more
        if more and moment.before is None:
            self._of_today()[caller] += len(moment.entry.event)
            self._arrived[caller] += 1

    def _take_one(self, caller: str, most: int) -> None:
        now = self._clock.now().timestamp()
        minute = self._minutes.get(caller)
        if minute is None or minute.per_minute != most:
            minute = self._minutes[caller] = Bucket(most, now)
        if (wait_s := minute.wait_s(1, now, behind=0)) > 0:
            raise OverQuota(f"{caller} has asked for {most} wakes within a minute", "wakes_per_minute", wait_s)
        minute.take(1, now)

    def _check(self, caller: str, quota: Quota) -> None:
        runs = self._open[caller] + self._entering[caller] - self._arrived[caller]
        taken = self._of_today()[caller]
        if quota.open_runs is not None and runs >= quota.open_runs:
            raise OverQuota(f"{caller} has {runs} runs that have not ended", "open_runs", OPEN_RETRY_S)
        if quota.bytes_per_day is not None and taken >= quota.bytes_per_day:
            raise OverQuota(f"{caller} has sent {taken} bytes today (UTC)", "bytes_per_day", self._left_of_today())
        if quota.usd_per_day is not None and (why := self._spending.reached_by(caller)):
            raise OverQuota(why, "usd_per_day", self._left_of_today())

    def _entered(self, caller: str) -> None:
        self._entering[caller] -= 1
        self._arrived[caller] -= self._arrived[caller] > 0

    def _of_today(self) -> Counter[str]:
        if self._day != (today := self._clock.now().date()):
            self._day, self._bytes = today, Counter()
        return self._bytes

    def _left_of_today(self) -> float:
        now = self._clock.now()
        tomorrow = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), now.tzinfo)
        return (tomorrow - now).total_seconds()
