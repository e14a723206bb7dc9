"""The limits that all runs share (rate, budget, quotas), recalled from the store and updated by each journal entry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Protocol, Self

from agent_service.admission.callers import UNBOUNDED
from agent_service.admission.quotas import Quotas
from agent_service.admission.rate_limits import MINUTE_S, Pace
from agent_service.admission.spending import Aside, Spending
from agent_service.run.journal import Entry
from agent_service.run.moments import Elsewhere, Moment
from agent_service.run.ports import Clock


class Taken(Protocol):
    """What is taken of the shared limits right now. All methods raise TryAgain."""

    def newest(self) -> int: ...

    def spent(self, day: date) -> Mapping[str, tuple[float, int]]:
        """By caller, that day (UTC): what models cost, in USD, and how many bytes of wakes came."""

    def open_runs(self) -> Mapping[str, int]:
        """How many runs of each caller have not ended, without those that runs started."""

    def set_aside(self) -> Mapping[str, Aside]:
        """By run."""

    async def calls(self, since: datetime) -> Sequence[Entry]:
        """The entries since then that reserve, answer or give up model calls, in order."""


@dataclass(slots=True)
class SharedLimits:
    pace: Pace
    spending: Spending
    quotas: Quotas
    _recalled: int = field(default=0, init=False)
    """Entries up to this position count as recalled."""

    @classmethod
    def none(cls, clock: Clock, pace: Pace) -> Self:
        spending = Spending(clock)
        return cls(pace, spending, Quotas(clock, spending, lambda _: UNBOUNDED))

    def committed(self, moment: Moment) -> None:
        if self.pace.limited or self.pace.others:
            self.pace.committed(moment)
        if moment.paid_usd or self.spending.aside:
            self.spending.committed(moment)
        if moment.opened:
            self.quotas.committed(moment)

    def elsewhere(self, one: Elsewhere) -> None:
        self.pace.elsewhere(one)
        if one.position > self._recalled:
            self.spending.elsewhere(one)
            self.quotas.elsewhere(one)

    def recall(self, taken: Taken, *, aside: bool = False) -> None:
        """Load what is taken today. `aside`: also for calls under way, as of others. Raises TryAgain."""
        before = None
        while before != (newest := taken.newest()):  # so that all is told as of one entry
            before, today = newest, self.spending.today
            spent = taken.spent(today)
            set_aside = taken.set_aside() if aside else {}
            self.spending.recall(today, {caller: usd for caller, (usd, _) in spent.items()}, set_aside)
            self.quotas.recall(taken.open_runs(), {caller: size for caller, (_, size) in spent.items()})
        self._recalled = newest

    async def recall_calls(self, taken: Taken, clock: Clock) -> None:
        """Load what the last minute's calls took of the rate. Raises TryAgain."""
        if self.pace.limited:
            now = clock.now()
            self.pace.recall(await taken.calls(now - timedelta(seconds=MINUTE_S)), now)
