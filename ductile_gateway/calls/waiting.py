"""Why a call is not begun yet: something is away, its run may have ended, or a person has stopped everything.

A write is asked about every time, as late as can be. Where no agent answers, it waits up to its deadline, unless one
answered a moment ago. A read is asked about after a long wait, and never held up.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from ductile_gateway.calls.call import Asked, Intent, Unwanted
from ductile_gateway.calls.excerpts import printable
from ductile_gateway.ports import HasEnded
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from schemas.status import Finding, Halt, WaitingCall
from schemas.values import dataclass, replace

log = logging.getLogger(__name__)


WORTH_TELLING = timedelta(seconds=5)
FORGOTTEN_AFTER = timedelta(seconds=60)
"""A message comes again every few seconds: one that does not is another gateway's by now, or gone."""
MOST_TOLD = 50


@dataclass(frozen=True, slots=True)
class _Wait:
    asked: Asked
    since: datetime
    seen: datetime
    why: str


class WaitingCalls:
    """By key: calls that were put off, and those that wait in hand."""

    def __init__(self) -> None:
        self._put_off: dict[str, _Wait] = {}
        self._in_line: dict[str, _Wait] = {}

    @contextlib.contextmanager
    def noted(self, asked: Asked) -> Iterator[None]:
        """Inside, a call that is put off by TryAgain is noted; one that is not waits no longer."""
        try:
            yield
        except TryAgain as error:
            self._put_off[asked.key] = self._wait(asked, printable(error))
            raise
        self._put_off.pop(asked.key, None)

    @contextlib.contextmanager
    def in_line(self, asked: Asked, why: str) -> Iterator[None]:
        self._in_line[asked.key] = self._wait(asked, why)
        try:
            yield
        finally:
            del self._in_line[asked.key]

    def _wait(self, asked: Asked, why: str) -> _Wait:
        now, known = utc_now(), self._put_off.get(asked.key)
        return _Wait(asked, known.since if known else now, now, why)

    def why(self, key: str) -> str | None:
        wait = self._put_off.get(key)
        return wait.why if wait else None

    def told(self) -> tuple[WaitingCall, ...]:
        now = utc_now()
        self._put_off = {key: wait for key, wait in self._put_off.items() if now - wait.seen < FORGOTTEN_AFTER}
        waits = (self._put_off | self._in_line).values()
        long = [wait for wait in waits if now - wait.since >= WORTH_TELLING]
        return tuple(_told(wait) for wait in sorted(long, key=lambda wait: wait.since)[:MOST_TOLD])


def look_at_waiting(calls: Sequence[WaitingCall]) -> Sequence[Finding]:
    if not calls:
        return ()
    first, number = calls[0], f"{len(calls)}{' or more' if len(calls) == MOST_TOLD else ''}"
    which = f"step {first.step}" + (f" task {first.task}" if first.task else "")
    text = f"{number} calls wait, that of {first.run_id} {which} since {first.since:%H:%M:%SZ}: {first.why}"
    remedy = "settle what they wait for: they are made then, or given up at their deadlines"
    return [Finding(name="gateway calls", mark="warning", text=text, remedy=remedy)]


def _told(wait: _Wait) -> WaitingCall:
    said = wait.asked.request.model_dump(include={"run_id", "step", "tool", "attempt", "task", "round"})
    return WaitingCall(**said, since=wait.since, until=wait.asked.request.deadline_at, why=wait.why)


A_MOMENT = timedelta(seconds=2)
"""Who asked for a call so short a time ago lived then, and its run with it."""
WAITED_FOR_LONG = timedelta(seconds=30)
ASK_AGAIN_S = 0.5


async def check_wanted(intent: Intent, has_ended: HasEnded) -> None:
    """Raises Unwanted, and TryAgain."""
    request = intent.asked.request
    if intent.may_repeat and waited(intent) <= WAITED_FOR_LONG:
        return
    ended = await has_ended(request.run_id)
    if ended:
        raise Unwanted
    if ended is None and not intent.may_repeat and request.executor and waited(intent) > A_MOMENT:
        raise TryAgain("no agent says whether the run of this write goes on", ASK_AGAIN_S)


def waited(intent: Intent) -> timedelta:
    return utc_now() - intent.asked.request.requested_at


COME_BACK_S = 0.25


class Standstill:
    """Nothing is stopped before `show` says so."""

    def __init__(self) -> None:
        self._halt: Halt | None = None
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def why(self) -> str:
        return str(self._halt) if self._halt and not self._halt.over else ""

    def show(self, halt: Halt | None) -> None:
        """What the bus shows now. A record that is gone changes nothing: it does not say that the stop is over."""
        if halt is not None and halt != self._halt:
            self._halt = halt
            self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def over(self) -> None:
        while self.why and not self._closed:
            await self._changed.wait()
        self.check()

    def check(self) -> None:
        if why := self.why:
            raise TryAgain(why, COME_BACK_S)

    def without_it(self, asked: Asked) -> Asked:
        request = asked.request
        stood = self._halt.stood_still(request.requested_at) if self._halt else timedelta(0)
        if request.deadline_at is None or not stood:
            return asked
        return replace(asked, request=request.model_copy(update={"deadline_at": request.deadline_at + stood}))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def look_at_standstill(standstill: Standstill) -> tuple[Finding, ...]:
    if not standstill.why:
        return ()
    remedy = "resume everything once that is settled"
    return (Finding(name="gateway halt", mark="wrong", text=f"no call begins: {standstill.why}", remedy=remedy),)
