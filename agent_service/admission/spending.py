"""Daily budget for models (UTC), of all runs and of each caller. It survives restarts.

A call is admitted only if the budget covers its upper bound beside all calls in flight. Otherwise it is held until the
day is over or the budget is raised, while the time of its run stands still. A free model is never held.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import date, datetime, time, timedelta
from functools import partial

from agent_service.admission.claims import LOCAL, Claims
from agent_service.core.state import RunState
from agent_service.core.waiting import FINAL
from agent_service.errors import ModelError
from agent_service.run.journal import Commit
from agent_service.run.ports import Clock, ReservedFunds
from agent_service.settings import UNBOUNDED, QuotaSettings
from agent_service.store.messages import RunRow
from schemas.values import dataclass

OF_THE_DAY = "spent_for_today"
SETTING = "agent.limits.usd_per_day"


@dataclass(slots=True)
class DaySums:
    """Sums of the current day (UTC), by caller."""

    clock: Clock
    _day: date | None = field(init=False, default=None)
    _sums: defaultdict[str, float] = field(init=False, default_factory=lambda: defaultdict(float))

    def recall(self, day: date, sums: Mapping[str, float]) -> None:
        self._day, self._sums = day, defaultdict(float, sums)

    @property
    def by_caller(self) -> defaultdict[str, float]:
        if self._day != (today := self.clock.now().date()):
            self.recall(today, {})
        return self._sums

    @property
    def left_s(self) -> float:
        """Seconds until the day is over."""
        now = self.clock.now()
        return (datetime.combine(now.date() + timedelta(days=1), time.min, now.tzinfo) - now).total_seconds()


@dataclass(slots=True)
class Spending:
    """`usd_per_day`: of all runs; None is no limit."""

    clock: Clock
    usd_per_day: float | None = None
    quota_of: Callable[[str], QuotaSettings] = lambda _: UNBOUNDED
    claims: Claims = LOCAL
    aside: dict[str, ReservedFunds] = field(init=False, default_factory=dict)
    """Reserves of calls in flight, by run, where there is a limit."""
    paid: DaySums = field(init=False)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.paid = DaySums(self.clock)

    @property
    def spent_usd(self) -> float:
        return sum(self.paid.by_caller.values())

    def reached(self, caller: str | None = None) -> str:
        """Reason why a run of the caller (None: any run) would wait for money now."""
        most = self.usd_per_day if caller is None else self.quota_of(caller).usd_per_day
        spent = self.spent_usd if caller is None else self.paid.by_caller.get(caller, 0.0)
        whose = f"({SETTING})" if caller is None else f"by {caller}"
        return "" if most is None or spent < most else f"{spent:.4f} of {most:.4f} USD of today are spent {whose}"

    def is_limited(self, caller: str) -> bool:
        return self.usd_per_day is not None or self.quota_of(caller).usd_per_day is not None

    async def admit(self, state: RunState, usd: float | None) -> ReservedFunds | None:
        """Reserves the cost of a call, where there is a limit. Raises ModelError: hold if too little of the day's
        budget is left, and pause if a whole day has too little.
        """
        caller = state.brief.caller
        lost = (state.reserve.cost_usd or 0.0) if state.reserve else 0.0
        if not self.is_limited(caller):
            return None
        if usd is None:
            raise self._hold(
                "the price of the model is not known, so usd_per_day cannot be kept: set agent.model.price"
            )
        async with self._turn:
            for most, of, whose in (
                (self.quota_of(caller).usd_per_day, caller, f"by {caller} (usd_per_day of its quota)"),
                (self.usd_per_day, None, f"({SETTING})"),
            ):
                if most is not None:
                    left = partial(self._left, state.run_id, usd + lost, most, of, whose)
                    await self.claims.claim("usd" if of is None else f"usd of {of}", usd + lost, left)
            self.aside[state.run_id] = funds = ReservedFunds(caller, usd)
            return funds

    def release(self, run_id: str, funds: ReservedFunds | None) -> None:
        if funds and self.aside.get(run_id) is funds:  # else another process makes the call
            del self.aside[run_id]

    def committed(self, change: Commit) -> None:
        after = change.state
        if change.paid_usd:
            self.paid.by_caller[after.brief.caller] += change.paid_usd
        if after.reserve is None and change.before and change.before.reserve:  # one not stored yet is `release`d
            self.aside.pop(after.run_id, None)

    def remote_commit(self, run_id: str, row: RunRow) -> None:
        if row.paid_usd:
            self.paid.by_caller[row.caller] += row.paid_usd
        if row.call and row.call.reserved:
            self.aside[run_id] = ReservedFunds(row.caller, row.call.usd)
        elif row.call or row.status in FINAL:
            self.aside.pop(run_id, None)

    def _left(self, run_id: str, wanted: float, most: float, of: str | None, whose: str) -> float:
        """USD that a caller (None: all) may still spend today, beside other runs' reserves. Raises ModelError."""
        spent = self.spent_usd if of is None else self.paid.by_caller[of]
        taken = spent + sum(one.usd for run, one in self.aside.items() if run != run_id and of in (None, one.caller))
        if wanted > most:
            why = f"the next model call may cost {wanted:.4f} USD, and a whole day has {most:.4f} {whose}: raise that"
            raise ModelError("pause", OF_THE_DAY, f"{why}, or lower agent.model.max_tokens, then resume the run")
        if taken + wanted > most:
            held = f"{taken:.4f} of {most:.4f} USD of today are spent or set aside {whose}"
            raise self._hold(f"{held}, and the next model call may cost {wanted:.4f}")
        return most - taken

    def _hold(self, why: str) -> ModelError:
        return ModelError("hold", OF_THE_DAY, why, retry_after_s=self.paid.left_s)
