"""Rate limiter: requests and tokens per minute over all runs, first come first served in each process.

Processes that share a store count each other's calls by their journal entries.
"""

import asyncio
import math
from collections.abc import Collection, Iterable
from dataclasses import field
from datetime import datetime

from agent_service.admission.claims import JOURNALED_WITHIN_S, LOCAL, PAUSE_S, Claims
from agent_service.core.waiting import FINAL
from agent_service.errors import ModelError
from agent_service.run.ports import CallCharge, RecordedCall
from agent_service.store.messages import RunRow
from groundwork.service.machine import this
from schemas.values import dataclass

MINUTE_S = 60.0
LONGEST_WAIT_S = 20.0
"""Longer waits become durable timers."""


@dataclass(slots=True)
class Bucket:
    """Holds one minute's worth and fills evenly. A call larger than the bucket takes its level below zero."""

    per_minute: int
    _at: float
    _level: float = field(init=False)

    def __post_init__(self) -> None:
        self._level = float(self.per_minute)

    def left(self, now: float) -> float:
        self._fill(now)
        return self._level

    def wait_s(self, amount: float, now: float, *, behind: float) -> float:
        """Seconds until `amount` is available beside `behind`; a larger one than the bucket waits for a full one."""
        self._fill(now)
        return max(0.0, (min(amount, self.per_minute) + behind - self._level) * MINUTE_S / self.per_minute)

    def take(self, amount: float, now: float) -> None:
        self._fill(now)
        self._level -= amount

    def _fill(self, now: float) -> None:
        self._level = min(self.per_minute, self._level + (now - self._at) * self.per_minute / MINUTE_S)
        self._at = now


class RateLimiter:
    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        claims: Claims = LOCAL,
    ) -> None:
        self._now = this().monotonic
        self._claims = claims
        rates = {"requests": requests_per_minute, "tokens": tokens_per_minute}
        self._rates = {name: rate for name, rate in rates.items() if rate}
        self._buckets = self._full(self._now())
        self.others: dict[str, tuple[int, str]] = {}
        """Tokens of calls of other processes, and the process, by run."""
        self._held_until = float("-inf")
        self._why = ""
        self._turn = asyncio.Lock()
        self._waiting: list[int] = []
        """Tokens of each call that waits for its turn."""

    @property
    def is_limited(self) -> bool:
        return bool(self._rates) or self._held_until > self._now()

    async def admit(self, tokens: int) -> None:
        """Returns when a call of `tokens` may be made. Raises ModelError (try again) if the wait is long."""
        self._check(self._wait_s(tokens, behind=self._waiting))
        self._waiting.append(tokens)
        try:
            async with self._turn:
                claimed = dict[str, float]()
                while (wait := self._wait_s(tokens)) > 0 or not await self._is_ours(tokens, claimed):
                    self._check(wait)
                    await asyncio.sleep(wait or PAUSE_S)
                self._take(1, tokens)
        finally:
            self._waiting.remove(tokens)

    def settle(self, admitted: int, used: int) -> None:
        """Corrects the estimate `admitted` to the tokens `used`."""
        self._take(0, used - admitted)

    def remote_commit(self, run_id: str, row: RunRow) -> None:
        if row.call:
            self._count(run_id, row.call, row.by)
        elif row.status in FINAL:
            self.others.pop(run_id, None)

    def recall(self, calls: Iterable[RecordedCall], now: datetime) -> None:
        """Counts the last minute's calls of all processes."""
        then = self._now() - MINUTE_S
        self._buckets = self._full(then)
        for at, run_id, call in calls:
            self._count(run_id, call, at=self._now() - min(MINUTE_S, max(0.0, (now - at).total_seconds())))

    def hold(self, seconds: float, why: str) -> None:
        """Blocks all calls, at the provider's request."""
        self._held_until = max(self._held_until, self._now() + seconds)
        self._why = why

    def _full(self, now: float) -> dict[str, Bucket]:
        return {name: Bucket(rate, now) for name, rate in self._rates.items()}

    async def _is_ours(self, tokens: int, claimed: dict[str, float]) -> bool:
        """`claimed`: when each limit was claimed before, for a call that waits for the other."""
        for name, bucket in self._buckets.items():
            if self._now() - claimed.get(name, -math.inf) < JOURNALED_WITHIN_S / 2:
                continue
            amount = min({"requests": 1, "tokens": tokens}[name], bucket.per_minute)
            if not await self._claims.try_claim(name, amount, left=bucket.left(self._now())):
                return False
            claimed[name] = self._now()
        return True

    def _count(self, run_id: str, call: CallCharge, by: str = "", at: float | None = None) -> None:
        """Counts a call of another process, or of the time before this one started (`at`)."""
        if call.reserved:
            self.others[run_id] = call.tokens, by
            self._take(1, call.tokens, at)
        elif (other := self.others.pop(run_id, None)) and ("tokens" in self._buckets or not call.replied):
            tokens, caller = other
            self._take(0, call.tokens - tokens, at)
            if caller == by and call.hold_s is not None:
                self.hold(call.hold_s, call.why)

    def _take(self, requests: int, tokens: int, at: float | None = None) -> None:
        now = self._now() if at is None else at
        for name, bucket in self._buckets.items():
            bucket.take({"requests": requests, "tokens": tokens}[name], now)

    def _wait_s(self, tokens: int, behind: Collection[int] = ()) -> float:
        now, amounts = self._now(), {"requests": (1, len(behind)), "tokens": (tokens, sum(behind))}
        waits = (
            bucket.wait_s(amounts[name][0], now, behind=amounts[name][1]) for name, bucket in self._buckets.items()
        )
        return max(0.0, self._held_until - now, *waits)

    def _check(self, wait_s: float) -> None:
        if wait_s <= LONGEST_WAIT_S:
            return
        held = self._held_until > self._now()
        message = f"the provider asked to wait: {self._why}" if held else "the rate limits of agent.model are used up"
        raise ModelError("try_again", "rate_limit", message, retry_after_s=wait_s)
