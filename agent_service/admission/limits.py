"""Limits granted to a run, and those shared by all runs: capacity, rates, budget, and quotas of callers, which journal
entries update.

A quota limits wakes per minute, open runs, and bytes and USD per day (UTC). All but the wakes survive restarts. A child
run is no wake of a caller, but spends its caller's money. Capacity is checked for new runs only.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import field, fields
from datetime import UTC, datetime, timedelta
from functools import partial

from pydantic import JsonValue

from agent_service.admission.rate_limits import MINUTE_S, Bucket, RateLimiter
from agent_service.admission.spending import DaySums, Spending
from agent_service.core.brief import Continuations, Limits
from agent_service.core.waiting import Status
from agent_service.errors import LimitRefused, OverQuota
from agent_service.run.journal import Commit
from agent_service.settings import AgentSettings
from agent_service.store.messages import RemoteCommit, RunRow
from agent_service.store.runs import RunStore
from groundwork.service.errors import TryAgain
from schemas.events import Constraints
from schemas.values import dataclass, replace

LATEST = timedelta(days=30)
"""Latest deadline, counted from acceptance."""
CAP_REFRAMES = 10
"""Unless the default is higher."""
OPEN_RETRY_S = 30.0


class LimitPolicy:
    """The operator's caps, by constraint, and defaults, whose deadline is replaced at each grant."""

    def __init__(self, settings: AgentSettings) -> None:
        self._given = given = settings.limits
        most, reframes = max(given.cap_steps, given.max_steps), max(CAP_REFRAMES, given.max_reframes)
        capped = {"max_tokens": given.cap_tokens, "max_cost_usd": given.cap_cost_usd}
        caps = {name: cap for name, cap in capped.items() if cap is not None}
        of_a_run = given.model_dump(include={one.name for one in fields(Limits)})
        of_a_run |= {name: min(cap, of_a_run[name] or cap) for name, cap in caps.items()}
        continuations = Continuations(**settings.continuations.model_dump())
        no_deadline = datetime.max.replace(tzinfo=UTC)
        self.defaults = Limits(**of_a_run, continuations=continuations, deadline_at=no_deadline)
        self.caps: Mapping[str, float] = {"max_loops": most, "max_steps": most, "max_reframes": reframes, **caps}

    def grant(self, constraints: Constraints, *, context: dict[str, JsonValue], at: datetime) -> Limits:
        """Raises LimitRefused. RFC-103 allows `max_steps` in the context too; the constraints win."""
        self.check_caps(constraints, at=at)
        size = len(json.dumps(context, ensure_ascii=False, separators=(",", ":")).encode())
        if size > self._given.max_context_bytes:
            raise LimitRefused("context", f"is {size} bytes as JSON; at most {self._given.max_context_bytes} are taken")
        asked = constraints.model_dump(include={"max_reframes", "max_tokens", "max_cost_usd"}, exclude_none=True)
        steps = constraints.steps or context.get("max_steps")
        if steps is not None:
            asked["max_steps"] = steps if constraints.steps else _steps(steps, most=self.caps["max_steps"])
        deadline = constraints.deadline_at
        return replace(
            self.defaults,
            **asked,
            deadline_at=deadline or at + timedelta(seconds=self._given.wall_clock_s),
            deadline_named=deadline is not None,
        )

    def check_caps(self, constraints: Constraints, *, at: datetime) -> None:
        """Raises LimitRefused for a constraint above its cap, or a past deadline."""
        for name, cap in self.caps.items():
            if (asked := getattr(constraints, name)) is not None and asked > cap:
                raise LimitRefused(f"constraints.{name}", f"is {asked}, and this service grants at most {cap}")
        deadline, latest = constraints.deadline_at, at + LATEST
        if deadline and deadline <= at:
            raise LimitRefused("constraints.deadline_at", f"has passed: it is {at:%Y-%m-%dT%H:%M:%SZ} now")
        if deadline and deadline > latest:
            why = f"is after {latest:%Y-%m-%dT%H:%M:%SZ}, the latest granted here"
            raise LimitRefused("constraints.deadline_at", why)


def _steps(asked: JsonValue, *, most: float) -> int:
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise LimitRefused("context.max_steps", "must be a whole number of at least 1")
    if asked > most:
        raise LimitRefused("context.max_steps", f"is {asked}, and this service grants at most {most}")
    return asked


@dataclass(slots=True)
class Quotas:
    spending: Spending
    sent: DaySums = field(init=False)
    """Bytes."""
    _locks: defaultdict[str, asyncio.Lock] = field(init=False, default_factory=lambda: defaultdict(asyncio.Lock))
    """By caller, like the fields below."""
    _minutes: dict[str, Bucket] = field(init=False, default_factory=dict)
    _open: Counter[str] = field(init=False, default_factory=Counter)
    _entering: Counter[str] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        self.sent = DaySums(self.spending.clock)

    def recall(self, open_runs: Mapping[str, int]) -> None:
        self._open = Counter(open_runs)

    @asynccontextmanager
    async def wake(self, caller: str, *, known: bool = False) -> AsyncIterator[ExitStack]:
        """A wake is accepted inside; a `known` one counts only against the rate. Yields the wake's place among the open
        runs, which a task that outlives the wake takes along. Raises OverQuota."""
        quota, claims = self.spending.quota_of(caller), self.spending.claims
        async with self._locks[caller]:
            if (most := quota.wakes_per_minute) is not None:
                await claims.claim(f"wakes of {caller}", 1, partial(self._wakes_left, caller, most))
                self._minute(caller, most).take(1, self._seconds())
            if not known:
                if (most := quota.bytes_per_day) is not None and (sent := int(self.sent.by_caller[caller])) >= most:
                    raise OverQuota(f"{caller} has sent {sent} bytes today (UTC)", "bytes_per_day", self.sent.left_s)
                if quota.usd_per_day is not None and (why := self.spending.reached(caller)):
                    raise OverQuota(why, "usd_per_day", self.sent.left_s)
                if (most := quota.open_runs) is not None:
                    await claims.claim(f"open runs of {caller}", 1, partial(self._places_left, caller, most))
            self._entering[caller] += 1
        with ExitStack() as place:
            place.callback(self._entering.subtract, (caller,))
            yield place

    def committed(self, change: Commit) -> None:
        caller = change.state.brief.caller
        self._open[caller] += change.opened
        if change.before is None:
            self.sent.by_caller[caller] += len(change.entry.event.encode())

    def remote_commit(self, row: RunRow) -> None:
        if not row.opened:
            return
        self._open[row.caller] += row.opened
        if row.seq > 1:
            return
        self.sent.by_caller[row.caller] += row.size
        if (most := self.spending.quota_of(row.caller).wakes_per_minute) is not None:
            self._minute(row.caller, most).take(1, self._seconds())

    def _wakes_left(self, caller: str, most: int) -> float:
        minute, now = self._minute(caller, most), self._seconds()
        if (wait_s := minute.wait_s(1, now, behind=0)) > 0:
            raise OverQuota(f"{caller} has asked for {most} wakes within a minute", "wakes_per_minute", wait_s)
        return minute.left(now)

    def _places_left(self, caller: str, most: int) -> float:
        runs = self._open[caller] + self._entering[caller]
        if runs >= most:
            raise OverQuota(f"{caller} has {runs} runs that have not ended", "open_runs", OPEN_RETRY_S)
        return most - runs

    def _minute(self, caller: str, most: int) -> Bucket:
        return self._minutes.setdefault(caller, Bucket(most, self._seconds()))

    def _seconds(self) -> float:
        return self.spending.clock.now().timestamp()


BUS_SHARE = 0.5
"""Share of the queue that starts from the bus may fill; the rest is left to callers of the API."""
QUEUED_S, FULL_S = 5.0, 30.0
"""Retry delays: runs begin all the time, but a person has to make room."""
KNOWN_WITHIN_S = 2.0
"""Time limit of a wake during trouble: one that is known or being stored is still answered."""


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
        """`again_s`: retry delay of callers."""
        self.trouble, self._again_s = trouble, again_s
        until = asyncio.get_running_loop().time() + KNOWN_WITHIN_S if trouble else None
        for wake in self._wakes:
            if not wake.expired() and (wake.when() is None or until is None):
                wake.reschedule(until)

    @asynccontextmanager
    async def unless_trouble(self) -> AsyncIterator[None]:
        """Gives up the work inside once there is trouble for a while. Raises TryAgain; it may have been stored."""
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


class SharedLimits:
    def __init__(self, spending: Spending, rate_limiter: RateLimiter | None = None) -> None:
        self.spending, self.rate_limiter = spending, rate_limiter or RateLimiter()
        self.quotas = Quotas(spending)
        self._recalled = 0
        """Entries up to this position are included in the recalled sums."""

    def committed(self, change: Commit) -> None:
        self.rate_limiter.others.pop(change.entry.run_id, None)
        if change.paid_usd or self.spending.aside:
            self.spending.committed(change)
        if change.opened:
            self.quotas.committed(change)

    def remote_commit(self, one: RemoteCommit) -> None:
        self.rate_limiter.remote_commit(one.run_id, one.row)
        if one.position > self._recalled:
            self.spending.remote_commit(one.run_id, one.row)
            self.quotas.remote_commit(one.row)

    async def recall(self, store: RunStore, *, aside: bool = False) -> None:
        """Loads today's usage, and the calls of the last minute. `aside`: including reserves of other agents' calls.
        Raises TryAgain."""
        before = None
        while before != (newest := store.newest()):  # so that all sums are of one entry
            before, today = newest, self.spending.clock.now().date()
            spent = store.spent(today)
            self.spending.paid.recall(today, {caller: usd for caller, (usd, _) in spent.items()})
            self.spending.aside |= store.reserved() if aside else {}
            self.quotas.sent.recall(today, {caller: size for caller, (_, size) in spent.items()})
            self.quotas.recall(store.open_runs())
        self._recalled = newest
        if self.rate_limiter.is_limited:
            now = self.spending.clock.now()
            self.rate_limiter.recall(await store.calls(now - timedelta(seconds=MINUTE_S)), now)
