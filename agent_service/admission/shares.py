"""What one of several processes may take of a shared limit before all of them know of it.

Journal entries tell every process what was taken, a little late. Until then a process takes no more than its part of
what is left; where that is too little for one, they take turns of some tenths of a second by the clock. So they exceed
the limit by at most one taking each, which a rate makes good by waiting. A process that is alone takes all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from groundwork.service.machine import epoch_seconds, monotonic

HEARD_WITHIN_S = 0.2
"""After a process has heard of its own entry, the others have too."""
FORGOTTEN_AFTER_S = 1.0
"""An entry that is not heard of by then may never come: its process went on to something else."""
PAUSE_S = 0.05
TURN_S = 0.2
"""Only in its first half something is taken, so that it is heard of before the next one's turn."""


def alone() -> int:
    return 1


def first() -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """How many processes share limits; this one's number from 0. `now`, `sleep` in s; `clock`: common, since 1970."""

    members: Callable[[], int] = alone
    rank: Callable[[], int] = first
    now: Callable[[], float] = monotonic
    clock: Callable[[], float] = epoch_seconds
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def has_its_turn(self) -> bool:
        turn, into = divmod(self.clock(), TURN_S)
        return into < TURN_S / 2 and int(turn) % self.members() == self.rank()

    async def news(self) -> None:
        await self.sleep(PAUSE_S)


ALONE = Company()


class Share:
    """This process's recent takings of one limit, by run."""

    def __init__(self, company: Company) -> None:
        self._company = company
        self._taken: dict[str, tuple[float, float]] = {}
        """How much, and until when it counts."""

    def allows(self, amount: float, *, left: float) -> bool:
        members = self._company.members()
        if members <= 1:
            return True
        mine = self._mine()
        return mine + amount <= (left + mine) / members or (not mine and self._company.has_its_turn)

    def take(self, run_id: str, amount: float) -> None:
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
        now = self._company.now()
        while self._taken and self._taken[oldest := next(iter(self._taken))][1] <= now:
            del self._taken[oldest]
