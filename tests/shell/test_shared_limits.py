"""Limits that several processes share hold over all of them together, by the entries that each hears of.

The processes hear of entries in one order and a little late, as they do of a shared store.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent_service.admission.callers import QuotaSettings
from agent_service.admission.limits import SharedLimits
from agent_service.admission.quotas import Quotas
from agent_service.admission.rate_limits import Pace
from agent_service.admission.shares import Company
from agent_service.admission.spending import Aside, Spending
from agent_service.core.events import CallReserved, Event, ModelUnavailable
from agent_service.core.waiting import Reserve
from agent_service.errors import ModelError, OverQuota
from agent_service.run.journal import Commit
from agent_service.run.moments import Elsewhere, Moment
from agent_service.store.sqlite import SqliteStore
from tests.kit.runs import FRAMING, NOON, accepted, after, replied, started, wake_of
from tests.kit.virtual_time import VirtualTime

LAG_S = 0.02
"""After which an entry is in the store, and heard of."""
CALL_S = 0.3
CALLER = "token ci"
TOKENS, COST_USD = 1100, 0.01
"""What each call uses, by the entries of the kit."""
MAY = Reserve(tokens=2000, cost_usd=0.02, reply_tokens=500)
TOO_MANY = {"remedy": "try_again", "error_class": "rate_limit", "message": "429", "retry_after_s": 30.0}


class Clock:
    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self._time.now)

    def new_run_id(self) -> str:
        raise NotImplementedError


class Fleet(VirtualTime):
    """Processes that share a store and limits; what they do all at once, and when calls were admitted."""

    def __init__(self, size: int, quota: QuotaSettings | None = None, **limits: Any) -> None:
        super().__init__()
        self._limits, self._quota = limits, quota or QuotaSettings()
        self._clock = Clock(self)
        self._numbers = count(1)
        self.journal: list[Commit] = []
        self.live: dict[int, SharedLimits] = {}
        self.admitted: list[float] = []
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        for number in range(size):
            self.join(number)

    def join(self, number: int) -> SharedLimits:
        usd, rates = self._limits.get("usd_per_day"), {k: v for k, v in self._limits.items() if k != "usd_per_day"}
        here = {"members": lambda: len(self.live), "rank": lambda: sorted(self.live).index(number)}
        company = Company(now=lambda: self.now, clock=lambda: self.now, sleep=self.sleep, **here)
        pace = Pace(**rates, now=company.now, sleep=company.sleep, company=company)
        spending = Spending(self._clock, usd, company=company)
        quotas = Quotas(self._clock, spending, lambda _: self._quota, company=company)
        self.live[number] = SharedLimits(pace, spending, quotas)
        return self.live[number]

    def die(self, number: int) -> None:
        del self.live[number]
        for task in self._tasks.pop(number):
            task.cancel()

    def busy(self, number: int, many: int, work: Callable[[SharedLimits], Coroutine[Any, Any, None]]) -> None:
        """Let a process do the same as `many` times at once."""
        limits = self.live[number]
        self._tasks[number] = [asyncio.ensure_future(work(limits)) for _ in range(many)]

    async def store(self, by: SharedLimits, before: Commit | None, commit: Commit, event: Event) -> Commit:
        await self.sleep(LAG_S)
        self.journal.append(commit)
        then = before.state if before else None
        for limits in self.live.values():
            if limits is by:
                limits.committed(Moment(entry=commit.entry, event=event, before=then, after=commit.state))
            else:
                limits.elsewhere(self._told(commit))
        return commit

    def _told(self, commit: Commit) -> Elsewhere:
        state, changed = commit.state, {"paid_usd": commit.paid_usd, "opened": commit.opened}
        told: dict[str, Any] = {"status": state.status, "caller": state.brief.caller, **changed}
        return Elsewhere(entry=commit.entry, position=len(self.journal), by="another", **told)

    async def call(self, limits: SharedLimits, *, refused: bool = False) -> None:
        """One model call of a run of its own. Raises ModelError where it may not be made."""
        base = started(accepted(next(self._numbers)))
        run_id, asking = base.state.run_id, base.state.asking
        assert asking
        await limits.spending.admit(base.state, MAY.cost_usd)
        await limits.pace.admit(MAY.tokens, run_id)
        self.admitted.append(self.now)
        reserves = CallReserved(at=self._clock.now(), call=asking.call, model="m", reserve=MAY)
        reserved = await self.store(limits, base, after(base, reserves), reserves)
        await self.sleep(CALL_S)
        limits.pace.settle(MAY.tokens, 0 if refused else TOKENS, run_id)
        answer = replied(reserved, FRAMING)
        event = answer.entry.decoded()
        if refused:
            event = ModelUnavailable(at=self._clock.now(), call=asking.call, **TOO_MANY)  # type: ignore[arg-type]
            limits.pace.hold(30.0, "429")
        await self.store(limits, reserved, after(reserved, event), event)

    async def calls(self, limits: SharedLimits) -> None:
        """One after the other, each put off as long as it is told."""
        while True:
            try:
                await self.call(limits)
            except ModelError as error:
                if error.remedy == "hold":
                    return
                await self.sleep(error.retry_after_s or 0.0)

    async def wakes(self, limits: SharedLimits) -> None:
        """Runs that do not end, until no more may be opened."""
        while True:
            try:
                async with limits.quotas.wake(CALLER):
                    wake = accepted(next(self._numbers), caller=CALLER)
                    await self.store(limits, None, wake, wake.entry.decoded())
            except OverQuota:
                return

    async def leave(self) -> None:
        for number in list(self._tasks):
            self.die(number)
        await asyncio.sleep(0)


@asynccontextmanager
async def fleet(size: int, quota: QuotaSettings | None = None, **limits: Any) -> AsyncIterator[Fleet]:
    processes = Fleet(size, quota, **limits)
    yield processes
    await processes.leave()


@pytest.mark.parametrize(
    ("rates", "a_minute"),
    [({"requests_per_minute": 120}, 120), ({"tokens_per_minute": 120 * TOKENS}, 120)],
    ids=["requests", "tokens"],
)
@pytest.mark.parametrize("size", [1, 3])
async def test_a_rate_is_that_of_all_processes_together(size: int, rates: dict[str, Any], a_minute: int) -> None:
    async with fleet(size, **rates) as processes:
        for number in range(size):
            processes.busy(number, 12, processes.calls)
        await processes.passes(60)
        assert len(processes.admitted) == pytest.approx(2 * a_minute, rel=0.05)


@pytest.mark.parametrize("size", [1, 3])
async def test_what_may_be_spent_in_a_day_is_spent_once(size: int) -> None:
    async with fleet(size, usd_per_day=2.0) as processes:
        for number in range(size):
            processes.busy(number, 10, processes.calls)
        await processes.passes(60)
        paid = sum(commit.paid_usd for commit in processes.journal)
        assert 0.95 * 2.0 <= paid <= 2.0
        assert [limits.spending.spent_usd for limits in processes.live.values()] == pytest.approx([paid] * size)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("most", [1, 60])
@pytest.mark.parametrize("named", ["open_runs", "wakes_per_minute"])
async def test_a_quota_is_that_of_all_processes_together(named: str, most: int, size: int) -> None:
    async with fleet(size, QuotaSettings(**{named: most})) as processes:
        for number in range(size):
            processes.busy(number, 30, processes.wakes)
        await processes.passes(2)
        over = 0 if named == "open_runs" else 1  # as it fills while wakes are accepted
        assert most <= len(processes.journal) <= most + over


async def test_what_the_store_knows_to_be_taken_is_recalled(tmp_path: Path) -> None:
    async with SqliteStore.open(tmp_path) as store, fleet(1, QuotaSettings(open_runs=1), usd_per_day=0.05) as processes:
        wake = accepted(1, caller=CALLER)
        base = started(wake)
        reserves = CallReserved(at=NOON, call=1, model="m", reserve=MAY)
        await store.accept(wake_of(wake), wake)
        for commit in (base, replied(base, FRAMING)):
            await store.commit(commit)
        await store.commit(after(replied(base, FRAMING), replace(reserves, call=2)))
        (limits,) = processes.live.values()
        limits.recall(store.taken, aside=True)
        assert limits.spending.spent_usd == pytest.approx(COST_USD)
        assert store.taken.set_aside() == {wake.state.run_id: Aside(CALLER, MAY.cost_usd or 0.0)}
        assert [entry.kind for entry in await store.taken.calls(NOON)] == ["ModelReplied", "CallReserved"]
        with pytest.raises(ModelError, match=r"0\.0300 of 0\.0500 USD of today are spent or set aside"):
            await limits.spending.admit(started(accepted(2)).state, 0.021)
        with pytest.raises(OverQuota, match="has 1 runs that have not ended"):
            async with limits.quotas.wake(CALLER):
                pytest.fail("it has a run that has not ended")
