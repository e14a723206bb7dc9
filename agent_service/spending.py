"""What may be spent on models in a day (UTC), by all runs and by those of one caller: known through restarts.

Rules: a call that costs something is let through only if the day's money suffices for the most that it may cost, beside
all calls that are under way. One that is not let through is held until the day is over, or more may be spent; its run
waits, and its time stands still. A model that spends nothing is never held.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from agent_service.core.state import RunState
from agent_service.core.waiting import ForModel
from agent_service.errors import ModelError
from agent_service.moments import Moment
from agent_service.ports import Clock

OF_THE_DAY = "spent_for_today"
SETTING = "agent.limits.usd_per_day"
A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _Aside:
    """What is set aside for a call that is under way."""

    caller: str
    usd: float


class Spending:
    """`usd_per_day`: of all runs; `of_caller`: of those of one. None is no limit."""

    def __init__(
        self, clock: Clock, usd_per_day: float | None = None, of_caller: Callable[[str], float | None] = lambda _: None
    ) -> None:
        self._clock = clock
        self._limit = usd_per_day
        self._of_caller = of_caller
        self._day: date | None = None
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._aside: dict[str, _Aside] = {}

    @property
    def usd_per_day(self) -> float | None:
        return self._limit

    @property
    def today(self) -> date:
        return self._clock.now().date()

    @property
    def spent_usd(self) -> float:
        """Today, by all runs."""
        return sum(self._of_today().values())

    def recall(self, day: date, by_caller: Mapping[str, float]) -> None:
        """What the store says was spent that day."""
        self._day, self._spent = day, defaultdict(float, by_caller)

    @property
    def reached(self) -> str:
        """Why any run would have to wait for money now; empty where it would not."""
        if self._limit is None or (spent := self.spent_usd) < self._limit:
            return ""
        return f"{spent:.4f} of {self._limit:.4f} USD of today are spent ({SETTING})"

    def reached_by(self, caller: str) -> str:
        """The same for what the caller's runs may spend."""
        most, spent = self._of_caller(caller), self._of_today().get(caller, 0.0)
        if most is None or spent < most:
            return ""
        return f"{spent:.4f} of {most:.4f} USD of today are spent by {caller}"

    def admit(self, state: RunState, usd: float | None) -> None:
        """Set aside what a call of the run may cost. Raises ModelError (hold) where that is too much for today."""
        caller = state.brief.caller
        lost = state.reserve.cost_usd if state.reserve else 0.0
        own, others = self._of_caller(caller), self._limit
        if own is None and others is None:
            return
        if usd is None:
            raise self._hold(f"the price of the model is not known, so {SETTING} cannot be kept: set agent.model.price")
        wanted = usd + (lost or 0.0)
        if own is not None:
            self._check(wanted, own, self._taken(caller, state.run_id), f"by {caller} (usd_per_day of its quota)")
        if others is not None:
            self._check(wanted, others, self._taken(None, state.run_id), f"({SETTING})")
        self._aside[state.run_id] = _Aside(caller, usd)

    def committed(self, moment: Moment) -> None:
        """What an entry paid, and what it sets aside."""
        after = moment.after
        if moment.paid_usd:
            self._of_today()[after.brief.caller] += moment.paid_usd
        if after.reserve is None and not _will_be_made(moment):
            self._aside.pop(after.run_id, None)

    def _of_today(self) -> defaultdict[str, float]:
        if self._day != (today := self.today):
            self._day, self._spent = today, defaultdict(float)
        return self._spent

    def _taken(self, caller: str | None, run_id: str) -> float:
        """Spent or set aside today by a caller (None: by all), but for what was set aside for the run before."""
        spent = self._of_today()
        aside = (one.usd for of, one in self._aside.items() if of != run_id and caller in (None, one.caller))
        return (sum(spent.values()) if caller is None else spent[caller]) + sum(aside)

    def _check(self, wanted: float, most: float, taken: float, whose: str) -> None:
        if taken + wanted > most:
            held = f"{taken:.4f} of {most:.4f} USD of today are spent or set aside {whose}"
            raise self._hold(f"{held}, and the next model call may cost {wanted:.4f}")

    def _hold(self, why: str) -> ModelError:
        now = self._clock.now()
        return ModelError("hold", OF_THE_DAY, why, retry_after_s=(_tomorrow(now) - now).total_seconds())


def _tomorrow(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + A_DAY


def _will_be_made(moment: Moment) -> bool:
    """Whether the call is between its two halves: set aside, and not in the journal yet."""
    before = moment.before.asking if moment.before else None
    return isinstance(moment.after.waiting, ForModel) and moment.after.waiting.asking == before
