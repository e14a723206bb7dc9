"""Sends what is in the outbox: milestones of runs to Ductile's relay ingress, callbacks of runs, and subscribers.

    bus ─▶ take: one row per receiver, durably ─▶ acknowledged ─▶ send ─▶ settle
                                                     ▲                └─▶ not yet: again, ever later
                                                     └─ after a restart   never, or for too long: the dead letters

A slow receiver delays no other; a receiver gets the events of one run one at a time, in order. A crash between `send`
and `settle` sends again, under the same id.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NoReturn, Protocol

from ductile_gateway.store.rows import Rows
from ductile_gateway.webhooks.notifications import (
    WAITING,
    LifecycleEvent,
    Notification,
    Outcome,
    Try,
    callback_of,
    next_try,
    notifications_of,
)
from ductile_gateway.webhooks.outbound_settings import OutboundSettings
from groundwork.service.errors import TryAgain
from groundwork.service.json_log import Outage
from groundwork.service.machine import utc_now
from groundwork.sqlite.file import Values, microseconds
from schemas.values import dataclass, replace

LOOK_S = 1.0
WIDTH = 4
"""Requests to one receiver in flight at the same time, each of another run."""
BURY_AGAIN = timedelta(seconds=30)

Told = Callable[[str, str], None]
"""Takes the target of a try to deliver, and its outcome."""

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=30)
"""Longer than a try takes: after this time another gateway makes it."""

_LANES = """
SELECT lane FROM (SELECT DISTINCT lane FROM rows WHERE state = 'waiting') AS waiting
WHERE EXISTS (SELECT 1 FROM heads WHERE heads.lane = waiting.lane AND at <= iif(coalesce(by, '') = ?, ?, ?))
"""
_DUE = """
SELECT subject, head, body FROM heads WHERE lane = ? AND at <= iif(coalesce(by, '') = ?, ?, ?)
ORDER BY at, position LIMIT ?
"""
_ROWS = "SELECT subject, head, body FROM rows"
_NUMBER = "SELECT count(*) FROM rows WHERE kind = 'notification' AND state = ?"
_OLDEST = f"{_ROWS} WHERE state = 'waiting' ORDER BY position LIMIT 1"
_FIRST_PUT_OFF = f"{_ROWS} WHERE state = 'waiting' AND json_extract(head, '$.why') <> '' ORDER BY position LIMIT 1"


def added(there: Notification | None, one: Notification, *, by: str) -> Notification:
    return there or replace(one, by=by)


def claimed(one: Notification | None, *, by: str, now: datetime) -> Notification | None:
    if not one or one.state != WAITING or one.by == by or one.at > now - OVERDUE:
        return one
    return replace(one, by=by, at=now)


def settled(one: Notification | None, outcome: Outcome, *, at: datetime, tries: int) -> Notification | None:
    if not one or one.state != WAITING:
        return one
    return replace(one, state=outcome, at=at, tries=tries, body=b"", url="")


def postponed(one: Notification | None, due_at: datetime, *, tries: int, why: str, by: str) -> Notification | None:
    """To be tried later by the same gateway; nothing is changed where another has it by now."""
    if not one or one.state != WAITING or one.by != by:
        return one
    return replace(one, at=due_at, tries=tries, why=why)


@dataclass(frozen=True, slots=True)
class Backlog:
    """`oldest`: since when. `lane`, `why`: of the first that met an obstacle. `dead`: given up, and still
    remembered."""

    waiting: int
    oldest: datetime | None
    lane: str
    why: str
    dead: int


class Outbox:
    """Owed to receivers, and kept for a while after they are settled. All methods are durable on return, and raise
    TryAgain. A notification belongs to the gateway that added it; one that is overdue any other claims right before it
    is sent."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def add(self, notifications: Sequence[Notification]) -> None:
        """What has been added before is left out."""
        for one in notifications:
            await self._rows.change(Notification, partial(added, one=one, by=self._rows.by), one.target, one.key)

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        """The lanes in which something is to be tried now by this gateway."""
        return [lane for (lane,) in self._rows.look_up(_LANES, self._due_by(now))]

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Notification]:
        """What is to be tried now by this gateway, the longest due first, one per run: the oldest that waits."""
        return self._listed(_DUE, (lane, *self._due_by(now), limit))

    async def claim(self, notification: Notification, now: datetime) -> bool:
        """Whether it is this gateway's to send, right before that; False where another has it, or had."""
        names = notification.target, notification.key
        one = await self._rows.read(Notification, *names)
        if one and one.by != self._rows.by:
            one = await self._rows.change(Notification, partial(claimed, by=self._rows.by, now=now), *names)
        return one is not None and one.state == WAITING and one.by == self._rows.by

    async def settle(self, notification: Notification, outcome: Outcome, *, at: datetime) -> None:
        settling = partial(settled, outcome=outcome, at=at, tries=notification.tries)
        await self._rows.change(Notification, settling, notification.target, notification.key)

    async def postpone(self, notification: Notification, due_at: datetime, *, why: str) -> None:
        later = partial(postponed, due_at=due_at, tries=notification.tries, why=why, by=self._rows.by)
        await self._rows.change(Notification, later, notification.target, notification.key)

    def backlog(self) -> Backlog:
        oldest = [one.accepted_at for one in self._listed(_OLDEST)]
        obstacle = [(one.lane, one.why) for one in self._listed(_FIRST_PUT_OFF)]
        return Backlog(
            self._number(WAITING),
            oldest[0] if oldest else None,
            *(obstacle or [("", "")])[0],
            self._number("dead"),
        )

    def _number(self, state: str) -> int:
        ((number,),) = self._rows.look_up(_NUMBER, (state,))
        return int(number)

    def _listed(self, statement: str, values: Values = ()) -> list[Notification]:
        return self._rows.listed(Notification, statement, values)

    def _due_by(self, now: datetime) -> Values:
        return self._rows.by, microseconds(now), microseconds(now - OVERDUE)


class Sender(Protocol):
    async def send(self, notification: Notification) -> Try:
        """Try once. The number of tries and the time between them are the caller's affair."""


class OutboundBus(Protocol):
    async def callback_of(self, run_id: str) -> str | None:
        """Where the run wants to be told of; None where there is no such wish. Raises TryAgain for now."""

    async def bury(self, notification: Notification, why: str) -> None:
        """Durably among the dead letters; twice is harmless. Raises TryAgain."""


@dataclass(eq=False)
class Outbound:
    settings: OutboundSettings
    outbox: Outbox
    sender: Sender
    bus: OutboundBus
    told: Told
    look_s: float = LOOK_S

    def __post_init__(self) -> None:
        self.unheard: Counter[tuple[str, str]] = Counter()
        """How many relayed events nothing listened to in a Ductile, by target and type."""
        self._wake = asyncio.Event()
        self._under_way: dict[tuple[str, str], str] = {}
        """By target and key: the lanes."""
        self._away: dict[str, Outage] = {}
        """By lane: receivers that did not take what they were sent last."""

    async def take(self, event: LifecycleEvent) -> None:
        """Durable on return; idempotent. Raises TryAgain where only the address of a callback is missing: the others
        are told."""
        at = utc_now()
        await self._add(notifications_of(event, self.settings, at=at))
        if event.has_callback:
            url = await self.bus.callback_of(event.run_id)
            await self._add([callback_of(event, url, at=at)] if url else [])

    async def _add(self, notifications: Sequence[Notification]) -> None:
        if notifications:
            await self.outbox.add(notifications)
            self._wake.set()

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                with contextlib.suppress(TryAgain):
                    for notification in await self._due():
                        self._under_way[notification.target, notification.key] = notification.lane
                        group.create_task(self._deliver(notification))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.look_s):  # wait_for can lose a cancellation
                        await self._wake.wait()

    async def _due(self) -> Sequence[Notification]:
        now, due = utc_now(), list[Notification]()
        busy = Counter(self._under_way.values())
        for lane in await self.outbox.lanes_due(now):
            if (room := WIDTH - busy[lane]) > 0:
                found = await self.outbox.due(lane, now, 2 * WIDTH)
                due += [one for one in found if (one.target, one.key) not in self._under_way][:room]
        return due

    async def _deliver(self, notification: Notification) -> None:
        try:
            if await self.outbox.claim(notification, utc_now()):
                await self._conclude(notification, await self._tried(notification))
                self._wake.set()
        except TryAgain as error:
            log.warning("what became of a delivery is not recorded; it is made again", extra={"why": str(error)})
            await asyncio.sleep(error.delay_s)
        finally:
            del self._under_way[notification.target, notification.key]

    async def _tried(self, notification: Notification) -> Try:
        try:
            return await self.sender.send(notification)
        except Exception as error:
            # A surprise in one delivery may neither stop the others nor make the gateway start over and over.
            log.exception("a delivery failed unexpectedly", extra=_named(notification))
            return Try("put_off", type(error).__name__)

    async def _conclude(self, notification: Notification, result: Try) -> None:
        tried, now = replace(notification, tries=notification.tries + 1), utc_now()
        outcome, why = result.outcome, result.why
        if outcome == "put_off":
            if due_at := next_try(tried, now=now, wish_s=result.after_s):
                await self.outbox.postpone(tried, due_at, why=why)
                self.told(tried.target, outcome)
                self._away.setdefault(tried.lane, Outage(tried.lane, log)).goes_on(why)
                return
            outcome, why = "dead", f"given up after {tried.tries} tries: {why}"
        if outcome == "dead":
            try:
                await self.bus.bury(tried, why)
            except TryAgain as error:
                await self.outbox.postpone(tried, now + BURY_AGAIN, why=f"{why}; {error}")
                return
        await self.outbox.settle(tried, "arrived" if outcome == "unheard" else outcome, at=now)
        self.told(tried.target, outcome)
        self._tell(tried, outcome, why)

    def _tell(self, tried: Notification, outcome: str, why: str) -> None:
        outage = self._away.pop(tried.lane, None)
        if outcome == "dead":
            log.error("not delivered, and in the dead letters now", extra=_named(tried) | {"why": why})
        elif outage:
            outage.over()
        if outcome == "unheard":
            self.unheard[tried.target, tried.type] += 1
            if self.unheard[tried.target, tried.type] == 1:
                log.warning("nothing in Ductile listens to %s: add a pipeline `on:` it", tried.type)


def _named(notification: Notification) -> dict[str, object]:
    return {
        "run_id": notification.run_id,
        "event": notification.type,
        "to": notification.lane,
        "tries": notification.tries,
    }
