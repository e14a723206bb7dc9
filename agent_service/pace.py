"""Pace: no more requests and tokens per minute than granted, over all runs of this process, first come first served.

Rules: a call that would have to wait long is told when to come back, so that its wait is a durable timer and no task.
When the provider says "too many", everybody holds back until it may be asked again, not only the run that heard it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

from agent_service.errors import ModelError

MINUTE_S = 60.0
LONGEST_WAIT_S = 20.0
"""Longer waits are put off durably."""


class Bucket:
    """Holds up to a minute's worth and fills evenly. May go below zero, for a call that takes more than it can hold."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._rate = per_minute / MINUTE_S
        self._capacity = float(per_minute)
        self._level = float(per_minute)
        self._at = now

    def wait_s(self, amount: float, now: float, *, behind: float) -> float:
        """How long until `amount` is there besides what is taken before it; what never fits waits for a full bucket."""
        self._fill(now)
        return max(0.0, (min(amount, self._capacity) + behind - self._level) / self._rate)

    def take(self, amount: float, now: float) -> None:
        self._fill(now)
        self._level -= amount

    def _fill(self, now: float) -> None:
        self._level = min(self._capacity, self._level + (now - self._at) * self._rate)
        self._at = now


class Pace:
    """Admits model calls. None for a rate means no limit of ours. `now` and `sleep` are in seconds."""

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._requests = Bucket(requests_per_minute, now()) if requests_per_minute else None
        self._tokens = Bucket(tokens_per_minute, now()) if tokens_per_minute else None
        self._held_until = float("-inf")
        self._why = ""
        self._turn = asyncio.Lock()
        self._waiting: list[int] = []
        """The tokens of each call that waits for its turn."""

    async def admit(self, tokens: int) -> None:
        """Return when a call of `tokens` may be made. Raises ModelError (try again) when that takes long."""
        self._check(self._wait_s(tokens, behind=self._waiting))
        self._waiting.append(tokens)
        try:
            async with self._turn:
                while (wait := self._wait_s(tokens)) > 0:
                    self._check(wait)
                    await self._sleep(wait)
                self._take(1, tokens)
        finally:
            self._waiting.remove(tokens)

    def settle(self, admitted: int, used: int) -> None:
        """Give back what a call was admitted for and did not use, or take what it used beyond."""
        self._take(0, used - admitted)

    def hold(self, seconds: float, why: str) -> None:
        """Let no call begin for `seconds`: the provider asked for it."""
        self._held_until = max(self._held_until, self._now() + seconds)
        self._why = why

    def _take(self, requests: int, tokens: int) -> None:
        if self._requests:
            self._requests.take(requests, self._now())
        if self._tokens:
            self._tokens.take(tokens, self._now())

    def _wait_s(self, tokens: int, behind: Collection[int] = ()) -> float:
        """How long a call of `tokens` has to wait when all calls of `behind` are made before it."""
        now = self._now()
        requests = self._requests.wait_s(1, now, behind=len(behind)) if self._requests else 0.0
        return max(
            requests,
            self._tokens.wait_s(tokens, now, behind=sum(behind)) if self._tokens else 0.0,
            self._held_until - now,
        )

    def _check(self, wait_s: float) -> None:
        if wait_s <= LONGEST_WAIT_S:
            return
        held = self._held_until > self._now()
        message = f"the provider asked to wait: {self._why}" if held else "the rate limits of agent.model are used up"
        raise ModelError("try_again", "rate_limit", message, retry_after_s=wait_s)
