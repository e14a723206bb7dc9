"""Admission of calls: slots, calls that wait, the check that a call is still wanted, and the pause gate.

The next slot goes to the run with the fewest calls in the lane, then with the fewest calls of all, then to the one that
has waited longest. If too many calls wait, the run with the most waiting gives one up for a run that has fewer. Before
every write the agent is asked as late as possible whether its run goes on: if none answers, the write waits up to its
deadline, unless it was requested a moment ago. For a read the agent is asked only after a long wait.
"""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count

from ductile_gateway.bus.permits import NatsPermits
from ductile_gateway.calls.artifacts import printable
from ductile_gateway.calls.call import CallRequest, ToolCall, Withdrawn
from ductile_gateway.ports import HasEnded
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from schemas.status import Finding, Halt, WaitingCall, counted
from schemas.values import dataclass, replace

FULL = "the limit of simultaneous calls of {tool} is reached"
COME_BACK_S = 0.25


@dataclass(slots=True, eq=False)
class _Waiting:
    """`since`: tick at which it began to wait, or later its run gave a slot back."""

    lane: str
    run_id: str
    since: int
    granted: asyncio.Future[None]


@dataclass(eq=False)
class CallSlots:
    """`most`: calls at a time in this gateway. `widths`: calls at a time per tool, else `width`; with `permits` of all
    gateways. `room`: calls that may wait here, None for any number; others are given back to the bus."""

    widths: Mapping[str, int]
    most: int
    width: int = sys.maxsize
    room: int | None = None
    permits: NatsPermits | None = None

    def __post_init__(self) -> None:
        self._in_use: list[tuple[str, str]] = []
        """Lane and run of each slot."""
        self._waiting: list[_Waiting] = []
        self._ticks = count()

    def take(self, run_id: str, lane: str) -> bool:
        """Takes a slot that is free now. False if the caller has to `acquire` it."""
        if self.permits or not self._is_free(lane):
            return False
        self._in_use.append((lane, run_id))
        return True

    async def acquire(self, run_id: str, lane: str) -> None:
        """Raises TryAgain if too many calls wait, and while closing."""
        if self._is_free(lane):
            self._in_use.append((lane, run_id))
        else:
            await self._wait(run_id, lane)
        if self.permits:
            try:
                await self.permits.acquire(lane, self.widths.get(lane, self.width))
            except BaseException:
                self._give_back(run_id, lane)
                raise

    def release(self, run_id: str, lane: str) -> None:
        if self.permits:
            self.permits.release(lane)
        self._give_back(run_id, lane)

    async def _wait(self, run_id: str, lane: str) -> None:
        self._make_room(run_id, lane)
        me = _Waiting(lane, run_id, next(self._ticks), asyncio.get_running_loop().create_future())
        self._waiting.append(me)
        try:
            await me.granted
        except asyncio.CancelledError:
            if me in self._waiting:
                self._waiting.remove(me)
            elif not me.granted.cancelled() and me.granted.exception() is None:  # it got a slot at the same moment
                self._give_back(run_id, lane)
            raise

    def _give_back(self, run_id: str, lane: str) -> None:
        self._in_use.remove((lane, run_id))
        now = next(self._ticks)
        for one in self._waiting:
            if one.run_id == run_id:
                one.since = now
        while self._waiting and (free := [one for one in self._waiting if self._is_free(one.lane)]):
            first = min(free, key=self._order)
            self._waiting.remove(first)
            if not first.granted.cancelled():
                self._in_use.append((first.lane, first.run_id))
                first.granted.set_result(None)

    def in_use(self, lane: str) -> int:
        return [each for each, _ in self._in_use].count(lane)

    def close(self) -> None:
        self.most = self.room = 0
        for one in list(self._waiting):
            self._refuse(one)
        if self.permits:
            self.permits.close()

    def _is_free(self, lane: str) -> bool:
        return len(self._in_use) < self.most and self.in_use(lane) < self.widths.get(lane, self.width)

    def _order(self, one: _Waiting) -> tuple[int, int, int]:
        """Calls that are equal in this go in the order of `_waiting`."""
        of_run = [run_id for _, run_id in self._in_use].count(one.run_id)
        return self._in_use.count((one.lane, one.run_id)), of_run, one.since

    def _make_room(self, run_id: str, lane: str) -> None:
        if self.room is None or len(self._waiting) < self.room:
            return
        waiting = Counter(one.run_id for one in self._waiting)
        greedy, most = max(waiting.items(), key=lambda of_run: of_run[1], default=(run_id, 0))
        if most <= waiting[run_id] + 1:
            raise _full(lane)
        self._refuse(next(one for one in reversed(self._waiting) if one.run_id == greedy))

    def _refuse(self, one: _Waiting) -> None:
        self._waiting.remove(one)
        if not one.granted.cancelled():
            one.granted.set_exception(_full(one.lane))


def _full(tool: str) -> TryAgain:
    return TryAgain(f"{FULL.format(tool=tool)}, and others wait", COME_BACK_S)


WORTH_REPORTING = timedelta(seconds=5)
FORGOTTEN_AFTER = timedelta(seconds=60)
"""A message is redelivered every few seconds: one that is not is another gateway's by now, or gone."""
MOST_REPORTED = 50


class WaitingCalls:
    """Calls that were put off, with the time of the last time, and calls that wait for a slot."""

    def __init__(self) -> None:
        self._put_off: dict[str, tuple[datetime, WaitingCall]] = {}
        self._in_hand: dict[str, WaitingCall] = {}

    def put_off(self, asked: CallRequest, why: TryAgain) -> None:
        self._put_off[asked.key] = utc_now(), self._wait(asked, why)

    def over(self, asked: CallRequest) -> None:
        self._put_off.pop(asked.key, None)

    @contextlib.contextmanager
    def waiting(self, asked: CallRequest, why: str) -> Iterator[None]:
        self._in_hand[asked.key] = self._wait(asked, why)
        try:
            yield
        finally:
            del self._in_hand[asked.key]

    def _wait(self, asked: CallRequest, why: object) -> WaitingCall:
        known, request = self._put_off.get(asked.key), asked.request
        named = request.model_dump(include={"run_id", "step", "tool", "attempt", "task", "round"})
        since, said = known[1].since if known else utc_now(), printable(why)
        return WaitingCall(**named, since=since, until=request.deadline_at, why=said)

    def why(self, key: str) -> str | None:
        known = self._put_off.get(key)
        return known[1].why if known else None

    def reported(self) -> tuple[WaitingCall, ...]:
        now = utc_now()
        self._put_off = {key: known for key, known in self._put_off.items() if now - known[0] < FORGOTTEN_AFTER}
        waits = ({key: wait for key, (_, wait) in self._put_off.items()} | self._in_hand).values()
        long = [wait for wait in waits if now - wait.since >= WORTH_REPORTING]
        return tuple(sorted(long, key=lambda wait: wait.since)[:MOST_REPORTED])


def waiting_findings(calls: Sequence[WaitingCall]) -> Sequence[Finding]:
    if not calls:
        return ()
    first, more = calls[0], " or more" if len(calls) == MOST_REPORTED else ""
    which = f"step {first.step}" + (f" task {first.task}" if first.task else "")
    that = f"{first.run_id} {which} since {first.since:%H:%M:%SZ}: {first.why}"
    text = f"waiting: {counted(len(calls), 'calls')}{more}, that of {that}"
    remedy = "settle what they wait for: they are made then, or given up at their deadlines"
    return [Finding(name="gateway calls", mark="warning", text=text, remedy=remedy)]


A_MOMENT = timedelta(seconds=2)
"""An agent that requested a call so short a time ago was alive, and so was the run."""
WAITED_FOR_LONG = timedelta(seconds=30)
ASK_AGAIN_S = 0.5


async def check_wanted(call: ToolCall, has_ended: HasEnded) -> None:
    """Raises Withdrawn if the run has ended, and TryAgain if no agent says whether it has."""
    waits = utc_now() - call.asked.request.requested_at
    if call.may_repeat and waits <= WAITED_FOR_LONG:
        return
    ended = await has_ended(call.asked.request.run_id)
    if ended:
        raise Withdrawn
    if ended is None and not call.may_repeat and call.asked.request.executor and waits > A_MOMENT:
        raise TryAgain("no agent says whether the run of this write goes on", ASK_AGAIN_S)


class PauseGate:
    """Holds up calls while everything is stopped; open until `update` receives a stop."""

    def __init__(self) -> None:
        self.why = ""
        self._halt: Halt | None = None
        self._ended: dict[int, Halt] = {}
        self._closed = False
        self._changed = asyncio.Event()

    def update(self, halt: Halt | None) -> None:
        """Takes over the record on the bus. A missing record changes nothing: it does not end a stop."""
        if halt is not None and halt != self._halt:
            self._halt, self.why = halt, "" if halt.over else str(halt)
            if halt.over:
                self._ended[halt.number] = halt
            self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def wait_open(self) -> None:
        """Raises TryAgain if the gateway closes before the stop is over."""
        while self.why and not self._closed:
            await self._changed.wait()
        self.check()

    def check(self) -> None:
        if self.why:
            raise TryAgain(self.why, COME_BACK_S)

    def with_time_stopped(self, asked: CallRequest) -> CallRequest:
        """The request with its deadline later by the time for which everything was stopped."""
        request = asked.request
        if not self._ended or request.deadline_at is None:
            return asked
        stood = sum((halt.stood_still(request.requested_at) for halt in self._ended.values()), timedelta())
        return replace(asked, request=request.model_copy(update={"deadline_at": request.deadline_at + stood}))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def pause_findings(gate: PauseGate) -> tuple[Finding, ...]:
    if not gate.why:
        return ()
    remedy = "resume everything once that is settled"
    return (Finding(name="gateway halt", mark="wrong", text=f"no call begins: {gate.why}", remedy=remedy),)
