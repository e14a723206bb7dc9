"""Which runs are to be written, and when: marks with a due time, and longer and longer waits after failures.

Instants are of the monotonic clock, in seconds. In memory only, used from one event loop.
"""

import asyncio
import heapq
import time
from collections.abc import Collection

FIRST_RETRY_S = 1.0
MAX_RETRY_S = 60.0


class Marks:
    """Run ids with the instants at which they fall due; of two marks of one run, the earlier counts."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._any = asyncio.Event()

    def mark(self, run_id: str, delay_s: float) -> None:
        due = time.monotonic() + delay_s
        self._due[run_id] = min(due, self._due.get(run_id, due))
        self._any.set()

    async def wait(self) -> None:
        """Wait until a run is marked, due or not."""
        await self._any.wait()

    def take(self, limit: int) -> list[str]:
        """Up to `limit` runs that are due, longest due first. They are marked no longer."""
        now = time.monotonic()
        due = heapq.nsmallest(limit, ((at, run_id) for run_id, at in self._due.items() if at <= now))
        return self._taken([run_id for _, run_id in due])

    def take_all(self) -> list[str]:
        """Every marked run, due or not, in the order in which they fall due."""
        return self._taken(sorted(self._due, key=self._due.__getitem__))

    def failed(self, run_ids: Collection[str]) -> float:
        """Mark them for another try; return the longest wait, in seconds."""
        longest = 0.0
        for run_id in run_ids:
            failures = self._failures[run_id] = self._failures.get(run_id, 0) + 1
            delay_s = min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 10))
            self.mark(run_id, delay_s)
            longest = max(longest, delay_s)
        return longest

    def settled(self, run_ids: Collection[str]) -> None:
        """They were written, or given up: past failures count no more."""
        for run_id in run_ids:
            self._failures.pop(run_id, None)

    def _taken(self, run_ids: list[str]) -> list[str]:
        for run_id in run_ids:
            del self._due[run_id]
        if not self._due:
            self._any.clear()
        return run_ids
