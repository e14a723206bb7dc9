"""Rates, budgets and quotas, of one process and of several together, by the entries that each receives.

Processes receive entries in one order and a little late, as from a shared store. Time passes only as a case says.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent_service.admission.claims import Amounts, Claims
from agent_service.admission.limits import SharedLimits
from agent_service.admission.rate_limits import RateLimiter
from agent_service.admission.spending import Spending
from agent_service.bus.buckets import NatsClaimStore
from agent_service.bus.topology import topology
from agent_service.core.facts import CallReserved
from agent_service.core.waiting import CallReserve
from agent_service.errors import ModelError, OverQuota
from agent_service.run.journal import Commit
from agent_service.run.ports import ReservedFunds
from agent_service.settings import QuotaSettings
from agent_service.store.messages import RemoteCommit, RunRow
from agent_service.store.runs import RunStore
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from groundwork.service.machine import monotonic
from tests.kit.fakes import FakeClock
from tests.kit.memory_log import MemoryLog, joined
from tests.kit.runs import DIGEST, FRAMING, NOON, accepted, after, replied, started
from tests.sim.machines.boundary import Boundary
from tests.sim.machines.network import Network
from tests.sim.machines.time import Process, Scheduler

MOMENT_S = 1e-6
"""The clock of the machine is no finer either, so that a wait always ends."""


class VirtualLoop(Process):
    """No timer is so short that its time does not pass."""

    def call_later(self, delay: float, *what: Any, **context: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        return super().call_later(max(delay, MOMENT_S), *what, **context)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Plays the test in an event loop of the simulator, in which time passes at once."""

    @wraps(test)
    def played(**given: Any) -> None:
        process = VirtualLoop("test", scheduler := Scheduler(1), Network(Boundary(scheduler)))
        process.begin(test(**given))
        assert scheduler.run_until(lambda: not process.alive, within_s=86_400)
        if process.why:
            raise process.why

    return played


LAG_S, CALL_S = 0.02, 0.3
"""Delays of an entry, and of a model's reply."""
VALUE_S = 0.003
CALLER = "token ci"
TOKENS, COST_USD = 1100, 0.01
"""Usage of each call, by the entries of the kit."""
MAY = CallReserve(tokens=2000, cost_usd=0.02, reply_tokens=500)


class MemoryValues:
    """Values that take a moment to be read and changed."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Amounts, int]] = {}

    async def look(self, limit: str) -> tuple[Amounts, int]:
        await asyncio.sleep(VALUE_S)
        return self._values.get(limit, ({}, 0))

    async def swap(self, limit: str, taken: Amounts, after: int) -> bool:
        await asyncio.sleep(VALUE_S)
        if self._values.get(limit, ({}, 0))[1] != after:
            return False
        self._values[limit] = taken, after + 1
        return True


class Fleet:
    """Processes that share a store and limits, and the instants at which calls were admitted."""

    def __init__(self, size: int, quota: QuotaSettings | None = None, usd: float | None = None, **rates: Any) -> None:
        self._numbers = count(1)
        self.journal: list[Commit] = []
        self.admitted = 0
        self.live: list[SharedLimits] = []
        values = MemoryValues()
        for _ in range(size):
            claims = Claims(values if size > 1 else None)
            rate_limiter = RateLimiter(**rates, claims=claims)
            spending = Spending(FakeClock(), usd, lambda _: quota or QuotaSettings(), claims)
            self.live.append(SharedLimits(spending, rate_limiter))

    async def busy(
        self, many: int, work: Callable[[SharedLimits], Coroutine[Any, Any, None]], *, seconds: float
    ) -> None:
        tasks = [asyncio.ensure_future(work(limits)) for limits in self.live for _ in range(many)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()

    async def store(self, by: SharedLimits, commit: Commit) -> Commit:
        await asyncio.sleep(LAG_S)
        self.journal.append(commit)
        row = RunRow.of(commit, None, by="another", digest="", whole_at=0, size=0, dispatched=0)
        for limits in self.live:
            if limits is by:
                limits.committed(commit)
            else:
                limits.remote_commit(RemoteCommit(commit.run_id, len(self.journal), row))
        return commit

    async def call(self, limits: SharedLimits) -> None:
        """One model call of a new run. Raises ModelError if it is not admitted."""
        base = started(accepted(next(self._numbers)))
        await limits.spending.admit(base.state, MAY.cost_usd)
        await limits.rate_limiter.admit(MAY.tokens)
        self.admitted += 1
        reserves = CallReserved(at=base.entry.at, call=1, model="m", reserve=MAY)
        reserved = await self.store(limits, after(base, reserves))
        await asyncio.sleep(CALL_S)
        limits.rate_limiter.settle(MAY.tokens, TOKENS)
        answer = replied(reserved, FRAMING)
        await self.store(limits, answer)

    async def calls(self, limits: SharedLimits) -> None:
        """Calls in sequence, each postponed as it is told."""
        while True:
            try:
                await self.call(limits)
            except ModelError as error:
                if error.remedy == "hold":
                    return
                await asyncio.sleep(error.retry_after_s or 0.0)

    async def wakes(self, limits: SharedLimits) -> None:
        while True:
            try:
                async with limits.quotas.wake(CALLER):
                    wake = accepted(next(self._numbers), caller=CALLER)
                    await self.store(limits, wake)
            except OverQuota:
                return


@pytest.mark.parametrize("rates", [{"requests_per_minute": 120}, {"tokens_per_minute": 120 * TOKENS}])
@pytest.mark.parametrize("size", [1, 3])
@in_virtual_time
async def test_a_rate_is_that_of_all_processes_together(size: int, rates: dict[str, Any]) -> None:
    fleet = Fleet(size, **rates)
    await fleet.busy(12, fleet.calls, seconds=60)
    assert fleet.admitted == pytest.approx(2 * 120, rel=0.05)


@pytest.mark.parametrize("size", [1, 3])
@in_virtual_time
async def test_what_may_be_spent_in_a_day_is_spent_once(size: int) -> None:
    fleet = Fleet(size, usd=2.0)
    await fleet.busy(10, fleet.calls, seconds=60)
    paid = sum(commit.paid_usd for commit in fleet.journal)
    assert 0.95 * 2.0 <= paid <= 2.0
    assert [limits.spending.spent_usd for limits in fleet.live] == pytest.approx([paid] * size)


async def test_a_call_that_costs_more_than_a_day_has_waits_for_a_person() -> None:
    (limits,) = Fleet(1, usd=0.05).live
    with pytest.raises(ModelError, match=r"a whole day has 0\.0500 \(agent\.limits\.usd_per_day\): raise") as caught:
        await limits.spending.admit(started(accepted()).state, 0.06)
    assert caught.value.remedy == "pause"


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("most", [1, 60])
@pytest.mark.parametrize("named", ["open_runs", "wakes_per_minute"])
@in_virtual_time
async def test_a_quota_is_that_of_all_processes_together(named: str, most: int, size: int) -> None:
    fleet = Fleet(size, QuotaSettings(**{named: most}))
    await fleet.busy(30, fleet.wakes, seconds=10)
    over = 0 if named == "open_runs" else 1  # as it fills while wakes are accepted
    assert most <= len(fleet.journal) <= most + over


@asynccontextmanager
async def shared(folder: Path) -> AsyncIterator[RunStore]:
    async with joined(MemoryLog(), folder) as member:
        yield member.store


@pytest.mark.parametrize("opened", [RunStore.open, shared])
async def test_what_the_store_knows_to_be_taken_is_recalled(
    opened: Callable[[Path], AbstractAsyncContextManager[RunStore]], tmp_path: Path
) -> None:
    (limits,) = Fleet(1, QuotaSettings(open_runs=1), usd=0.05, requests_per_minute=1).live
    wake = accepted(1, caller=CALLER)
    base = started(wake)
    reserves = CallReserved(at=NOON, call=2, model="m", reserve=MAY)
    async with opened(tmp_path) as store:
        await store.accept(wake, DIGEST)
        for commit in (base, framed := replied(base, FRAMING), after(framed, reserves)):
            await store.commit(commit)
        await store.caught_up()
        await limits.recall(store, aside=True)
        assert store.reserved() == {wake.state.run_id: ReservedFunds(CALLER, MAY.cost_usd or 0.0)}
        assert [call.reserved for _, _, call in await store.calls(NOON)] == [False, True]
    assert limits.spending.spent_usd == pytest.approx(COST_USD)
    with pytest.raises(ModelError, match=r"0\.0300 of 0\.0500 USD of today are spent or set aside"):
        await limits.spending.admit(started(accepted(2)).state, 0.021)
    with pytest.raises(OverQuota, match="has 1 runs that have not ended"):
        async with limits.quotas.wake(CALLER):
            pytest.fail("it has a run that has not ended")
    with pytest.raises(ModelError, match=r"the rate limits of agent\.model are used up"):
        await limits.rate_limiter.admit(1)


async def test_what_processes_take_of_a_limit_at_the_same_time_stands_in_one_value_of_the_bus(link: NatsLink) -> None:
    await set_up(link, topology(max_gib=1, shared=True))
    one, other = Claims(NatsClaimStore(link)), Claims(NatsClaimStore(link))
    assert await one.try_claim("usd", 1.0, left=3.0)
    assert await other.try_claim("usd", 1.5, left=3.0)
    assert not await one.try_claim("usd", 1.0, left=2.0), "the other's may not be told of yet"
    assert await one.try_claim("usd", 0.5, left=2.0)
    assert not await other.try_claim("usd", 0.5, left=1.5)
    assert await other.try_claim("usd of ann", 0.5, left=1.5), "of another limit"
    taken = await asyncio.gather(*(each.try_claim("requests", 1, left=10) for each in (one, other) * 5))
    assert all(taken)


class Callers:
    """Calls that ask a rate limiter for admission, and their outcomes."""

    def __init__(self, requests: int | None = None, tokens: int | None = None) -> None:
        self.admitted: list[tuple[float, str]] = []
        """Instant and name of each call, in the order of admission."""
        self.put_off: dict[str, float | None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.rate_limiter = RateLimiter(requests_per_minute=requests, tokens_per_minute=tokens)

    async def _admit(self, name: str, tokens: int) -> None:
        try:
            await self.rate_limiter.admit(tokens)
        except ModelError as error:
            self.put_off[name] = error.retry_after_s
        else:
            self.admitted.append((round(monotonic(), 2), name))

    def ask(self, name: str, tokens: int = 0) -> None:
        self._tasks[name] = asyncio.ensure_future(self._admit(name, tokens))

    async def do(self, script: str) -> None:
        """`+5` lets five seconds pass, `a=9` requests nine tokens, `-a` gives up, `hold=10` is the provider's wish, and
        `used=1/9` settles a call that used one of nine tokens.
        """
        for word in script.split():
            name, _, number = word.partition("=")
            match name[0], name:
                case "+", _:
                    await asyncio.sleep(float(word) or MOMENT_S)
                case "-", _:
                    self._tasks[name[1:]].cancel()
                case _, "hold":
                    self.rate_limiter.hold(float(number), "429")
                case _, "used":
                    used, _, admitted = number.partition("/")
                    self.rate_limiter.settle(int(admitted), int(used))
                case _:
                    self.ask(name, int(number or 0))


IN_REQUESTS, IN_TOKENS = "requests", "tokens"
CASES: dict[str, tuple[dict[str, int], str, str, dict[str, float]]] = {
    "tokens are paced as requests are": (
        {IN_TOKENS: 6000},
        "a=1500 b=1500 c=1500 d=1500 e=1500 f=1500 +30",
        "a0 b0 c0 d0 e15",
        {"f": 30},
    ),
    "the stricter of both rates holds": ({IN_REQUESTS: 6, IN_TOKENS: 600}, "a=500 b=100 c=100 +20", "a0 b0 c10", {}),
    "what was not used fills the minute and no more": ({IN_REQUESTS: 2}, "+3600 a b c +0", "a3600 b3600", {"c": 30}),
    "a call larger than a minute's worth waits for a full minute and holds the next ones back": (
        {IN_TOKENS: 6000},
        "larger=9000 +0 next=100 +31 later=100 +0",
        "larger0 later31",
        {"next": 31},
    ),
    "who comes first is served first though the next needs less": (
        {IN_TOKENS: 6000},
        "first=6000 +0 large=1000 small=1 +20",
        "first0 large10 small10.01",
        {},
    ),
    "a call that is given up while it waits takes nothing and delays no other": (
        {IN_TOKENS: 6000},
        "first=6000 +0 impatient=1500 patient=500 +1 -impatient +4.1",
        "first0 patient5",
        {},
    ),
    "a long wait is put off with the time it would take": (
        {IN_TOKENS: 6000},
        "first=6000 +0 a=2100 +21 again=2100 +0",
        "first0 again21",
        {"a": 21},
    ),
    "while the provider holds us back no call goes on": ({}, "hold=10 a b c +11", "a10 b10 c10", {}),
    "a long hold is put off": ({}, "hold=30 a +30 b +0", "b30", {"a": 30}),
    "a shorter hold does not end a longer one": ({}, "hold=15 hold=1 a +20", "a15", {}),
    "who is waiting already is put off when the hold is long": (
        {IN_REQUESTS: 6},
        "a b c d e f g +5 hold=60 +5",
        "a0 b0 c0 d0 e0 f0",
        {"g": 55},
    ),
    "what a call did not use is given back": ({IN_TOKENS: 6000}, "a=6000 +0 used=1000/6000 b=5000 +0", "a0 b0", {}),
    "what a call used beyond is taken": ({IN_TOKENS: 6000}, "a=1000 +0 used=6000/1000 b=500 +20", "a0 b5", {}),
    "giving back never makes more than a minute's worth": (
        {IN_TOKENS: 6000},
        "first=6000 +60 used=0/6000 all=6000 more=600 +5.9",
        "first0 all60",
        {},
    ),
    "a request is not given back with its tokens": (
        {IN_REQUESTS: 1, IN_TOKENS: 6000},
        "a=100 +0 used=0/100 b=1 +0",
        "a0",
        {"b": 60},
    ),
}


@pytest.mark.parametrize("case", CASES)
@in_virtual_time
async def test_calls_are_admitted_at_their_time_and_put_off_for_theirs(case: str) -> None:
    rates, script, admitted, put_off = CASES[case]
    callers = Callers(**rates)
    await callers.do(script)
    assert " ".join(f"{name}{at:g}" for at, name in callers.admitted) == admitted
    assert callers.put_off == pytest.approx(put_off)


@in_virtual_time
async def test_over_any_time_no_more_is_admitted_than_granted() -> None:
    callers = Callers(requests=30, tokens=3000)
    for second in range(5 * 60):
        for number in range(3):
            callers.ask(f"{second}.{number}", tokens=50 + 40 * number)
        await asyncio.sleep(1)
    assert sum(50 + 40 * int(name[-1]) for _, name in callers.admitted) <= 3000 * 6
    assert 30 * 5 * 0.9 <= len(callers.admitted) <= 30 * 6
