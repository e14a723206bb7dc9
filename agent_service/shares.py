"""What one of several processes may take of a limit that they share, before all of them can know of it.

What is taken is told by an entry of the journal, of which every process hears in the same order, a little late. Rule:
within the time that this takes, a process takes no more than its part of what is left, or once where that is more. So
together they take no more than what was left, and at most one taking each beyond it where almost nothing was, which a
rate makes good by waiting. Who is alone takes all.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

HEARD_WITHIN_S = 0.2
"""After a process has heard of its own entry, the others have too."""
FORGOTTEN_AFTER_S = 1.0
"""An entry that is not heard of by then may never come: its process went on to something else."""
PAUSE_S = 0.05


def alone() -> int:
    """How many share where no other process does."""
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """With whom limits are shared: how many there are now, this process among them. Times are in seconds."""

    members: Callable[[], int] = alone
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def news(self) -> None:
        """Wait until more may be taken, for a while."""
        await self.sleep(PAUSE_S)


ALONE = Company()


class Share:
    """What this process took of one limit of late, by run."""

    def __init__(self, company: Company) -> None:
        self._company = company
        self._taken: dict[str, tuple[float, float]] = {}
        """How much, and until when it counts."""

    def allows(self, amount: float, *, left: float) -> bool:
        """Whether `amount` may be taken where so much is `left`."""
        members = self._company.members()
        if members <= 1:
            return True
        mine = self._mine()
        return not mine or mine + amount <= (left + mine) / members

    def take(self, run_id: str, amount: float) -> None:
        """It is taken, and in no entry yet."""
        if self._company.members() > 1:
            self._forget()
            self._taken[run_id] = amount, self._company.now() + FORGOTTEN_AFTER_S

    def heard(self, run_id: str) -> None:
        """An entry tells of it, or it was given back."""
        if run_id in self._taken:
            amount, until = self._taken[run_id]
            self._taken[run_id] = amount, min(until, self._company.now() + HEARD_WITHIN_S)

    def _mine(self) -> float:
        now = self._company.now()
        return sum(amount for amount, until in self._taken.values() if until > now)

    def _forget(self) -> None:
        """The oldest that count no longer."""
        now = self._company.now()
        while self._taken and self._taken[oldest := next(iter(self._taken))][1] <= now:
            del self._taken[oldest]
