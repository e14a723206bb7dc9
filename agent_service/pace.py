"""Pace: no more requests and tokens per minute than granted, over all runs of this process, first come first served.

Rules: a call that would have to wait long is told when to come back, so that its wait is a durable timer and no task.
When the provider says "too many", everybody holds back until it may be asked again, not only the run that heard it.
"""

import asyncio
import time
from collections.abc import Callable

from agent_service.errors import ModelError

MINUTE_S = 60.0
LONGEST_WAIT_S = 20.0
"""Longer waits are put off durably."""


class _Bucket:
    """Holds up to a minute's worth and fills evenly. May go below zero, for a call that takes more than it can hold."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._rate = per_minute / MINUTE_S
        self._capacity = float(per_minute)
        self._level = float(per_minute)
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """How long until `amount` is there; one that is larger than the bucket waits until it is full."""
        self._fill(now)
        return max(0.0, (min(amount, self._capacity) - self._level) / self._rate)

    def take(self, amount: float, now: float) -> None:
        self._fill(now)
        self._level -= amount

    def _fill(self, now: float) -> None:
        self._level = min(self._capacity, self._level + (now - self._at) * self._rate)
        self._at = now


class Pace:
    """Admits model calls. None for a rate means no limit of ours."""

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._requests = _Bucket(requests_per_minute, now()) if requests_per_minute else None
        self._tokens = _Bucket(tokens_per_minute, now()) if tokens_per_minute else None
        self._held_until = float("-inf")
        self._why = ""
        self._turn = asyncio.Lock()

    async def admit(self, tokens: int) -> None:
        """Return when a call of `tokens` may be made. Raises ModelError (try again) when that takes long."""
        if self._wait_s(tokens) > LONGEST_WAIT_S:
            raise self._later(tokens)
        async with self._turn:
            while (wait := self._wait_s(tokens)) > 0:
                if wait > LONGEST_WAIT_S:
                    raise self._later(tokens)
                await asyncio.sleep(wait)
            if self._requests:
                self._requests.take(1, self._now())
            if self._tokens:
                self._tokens.take(tokens, self._now())

    def settle(self, admitted: int, used: int) -> None:
        """Give back what a call was admitted for and did not use, or take what it used beyond."""
        if self._tokens:
            self._tokens.take(used - admitted, self._now())

    def hold(self, seconds: float, why: str) -> None:
        """Let no call begin for `seconds`: the provider asked for it."""
        self._held_until = max(self._held_until, self._now() + seconds)
        self._why = why

    def _wait_s(self, tokens: int) -> float:
        now = self._now()
        buckets = (self._requests.wait_s(1, now) if self._requests else 0.0, self._held_until - now)
        return max(*buckets, self._tokens.wait_s(tokens, now) if self._tokens else 0.0)

    def _later(self, tokens: int) -> ModelError:
        held = self._held_until > self._now()
        message = f"the provider asked to wait: {self._why}" if held else "the rate limits of agent.model are used up"
        return ModelError("try_again", "rate_limit", message, retry_after_s=self._wait_s(tokens))
