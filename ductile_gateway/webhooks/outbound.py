"""Notifies others of runs: Ductile's relay ingress, callbacks of runs, and subscribers.

    bus ─▶ take: one row per receiver, durably ─▶ acknowledged ─▶ send ─▶ settle
                                                     ▲                ├─▶ retry, with growing delays
                                                     └─ after a restart   └─▶ dead letter

A slow receiver delays no other; a receiver gets the events of one run one at a time, in order. A crash between `send`
and `settle` sends again, under the same id. A missing consumer stops nothing else; it is used as soon as it exists.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NoReturn

from ductile_gateway.bus.incoming import follow_events
from ductile_gateway.bus.outgoing import callback_of_run, dead_letter
from ductile_gateway.bus.permits import NatsPermits
from ductile_gateway.calls.call import ALONE
from ductile_gateway.store.rows import Rows
from ductile_gateway.trust import Trust
from ductile_gateway.webhooks import notifications
from ductile_gateway.webhooks.notifications import LifecycleEvent, Notification, Outcome, Try
from ductile_gateway.webhooks.settings import OutboundSettings
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from groundwork.service.json_log import Outage
from groundwork.service.machine import set_within, utc_now
from groundwork.service.program import loaded
from groundwork.service.serving import let_recovery_start
from groundwork.sqlite.file import Values, microseconds
from schemas import subjects
from schemas.status import Finding
from schemas.values import dataclass, replace

LEEWAY = timedelta(seconds=10)
REMEMBERED = timedelta(days=15)
"""A day longer than the bus can redeliver the event."""
LONG = timedelta(minutes=5)

_LANES = """
SELECT lane FROM (SELECT DISTINCT lane FROM rows WHERE state = 'waiting') AS waiting
WHERE EXISTS (SELECT 1 FROM heads WHERE heads.lane = waiting.lane AND at <= iif(coalesce(by, '') = ?, ?, ?))
"""
_DUE = """
SELECT subject, head, body FROM heads WHERE lane = ? AND at <= iif(coalesce(by, '') = ?, ?, ?)
ORDER BY at, position LIMIT ?
"""
_NUMBER = "SELECT count(*) FROM rows WHERE kind = 'notification' AND state = ?"
_OLDEST = "SELECT subject, head, body FROM rows WHERE state = 'waiting' ORDER BY position LIMIT 1"


@dataclass(eq=False)
class NotificationOutbox:
    """All methods are durable on return, and raise TryAgain. `timeout_s`: of an attempt."""

    rows: Rows
    timeout_s: float = 20.0

    @property
    def overdue(self) -> timedelta:
        """Time after which another gateway may claim a notification that is due: no attempt takes so long."""
        return timedelta(seconds=self.timeout_s) + LEEWAY

    async def add(self, notifications: Iterable[Notification]) -> None:
        for one in notifications:
            added = replace(one, by=self.rows.by)
            await self.rows.change(Notification, lambda stored, added=added: stored or added, one.target, one.key)  # type: ignore[misc] # bound at once

    async def lanes_due(self, now: datetime) -> Sequence[str]:
        return [lane for (lane,) in self.rows.look_up(_LANES, self._due_by(now))]

    async def due(self, lane: str, now: datetime, limit: int) -> Sequence[Notification]:
        """This gateway's notifications that are due, longest first: of each run the oldest."""
        return self.rows.listed(Notification, _DUE, (lane, *self._due_by(now), limit))

    async def claim(self, one: Notification, now: datetime) -> bool:
        """True if this gateway may send it now; False if another gateway has claimed or settled it."""

        def claimed(stored: Notification) -> Notification:
            if stored.by == self.rows.by == ALONE or (stored.by != self.rows.by and stored.at > now - self.overdue):
                return stored
            return replace(stored, by=self.rows.by, at=now)

        found = await self._change(one, claimed)
        return found is not None and found.state == notifications.WAITING and found.by == self.rows.by

    async def settle(self, one: Notification, outcome: Outcome, *, at: datetime) -> None:
        await self._change(one, lambda row: replace(row, state=outcome, at=at, tries=one.tries, body=b"", url=""))

    async def postpone(self, one: Notification, due_at: datetime, *, why: str) -> None:
        """Schedules the next attempt, unless another gateway has claimed it meanwhile."""

        def later(stored: Notification) -> Notification:
            return replace(stored, at=due_at, tries=one.tries, why=why) if stored.by == self.rows.by else stored

        await self._change(one, later)

    def waiting(self) -> int:
        return self._number(notifications.WAITING)

    def findings(self) -> Sequence[Finding]:
        found = list[tuple[str, str]]()
        for oldest in self.rows.listed(Notification, _OLDEST):
            if utc_now() - oldest.accepted_at > LONG:
                since = f"the oldest since {oldest.accepted_at:%Y-%m-%dT%H:%M:%SZ}"
                remedy = f"see what is wrong at {oldest.lane}: {oldest.why}" if oldest.why else "see the log"
                found.append((f"{self.waiting()} deliveries wait, {since}", remedy))
        if dead := self._number("dead"):
            text = f"{dead} deliveries were given up in the last {REMEMBERED.days} days"
            found.append((text, "see them with `agentic dlq ls`"))
        return [Finding(name="outbound", mark="warning", text=text, remedy=remedy) for text, remedy in found]

    async def _change(self, one: Notification, change: Callable[[Notification], Notification]) -> Notification | None:
        def if_waiting(stored: Notification | None) -> Notification | None:
            return change(stored) if stored and stored.state == notifications.WAITING else stored

        return await self.rows.change(Notification, if_waiting, one.target, one.key)

    def _number(self, state: str) -> int:
        ((number,),) = self.rows.look_up(_NUMBER, (state,))
        return int(number)

    def _due_by(self, now: datetime) -> Values:
        return self.rows.by, microseconds(now), microseconds(now - self.overdue)


LOOK_S = 1.0
WIDTH = 4
"""Concurrent requests to one server, each of another run."""
BURY_AGAIN = timedelta(seconds=30)

Count = Callable[[str, str], None]
"""Counts an attempt by its target and outcome."""

log = logging.getLogger(__name__)


async def serve_outbound(
    settings: OutboundSettings,
    link: NatsLink,
    outbox: NotificationOutbox,
    *,
    trust: Trust,
    count: Count,
    permits: NatsPermits | None,
) -> None:
    """Runs until cancelled. Of several gateways, one with a permit takes the events. Raises Misconfigured or Broken."""
    await let_recovery_start()  # the sender takes 100 ms to load
    async with loaded("ductile_gateway.webhooks.sender:open_sender")(settings) as sender, asyncio.TaskGroup() as group:
        outbound = Outbound(
            settings, outbox, sender.send, partial(callback_of_run, link), partial(dead_letter, link), count
        )
        follow = partial(follow_events, link, trust=trust, take=outbound.take)
        streams = {subjects.STREAM: subjects.DURABLE_LIFECYCLE}
        if settings.wants_progress():
            streams[subjects.STREAM_PROGRESS] = subjects.DURABLE_PROGRESS
        group.create_task(outbound.run())
        for stream, durable in streams.items():
            following = partial(follow, stream, durable)
            group.create_task(permits.as_one(f"events-{durable}", following) if permits else following())


@dataclass(eq=False)
class Outbound:
    settings: OutboundSettings
    outbox: NotificationOutbox
    send: Callable[[Notification], Awaitable[Try]]
    callback_of_run: Callable[[str], Awaitable[str | None]]
    bury: Callable[[Notification, str], Awaitable[None]]
    count: Count
    look_s: float = LOOK_S

    def __post_init__(self) -> None:
        self._unheard = set[tuple[str, str]]()  # targets and types
        self._wake = asyncio.Event()
        self._in_flight: dict[tuple[str, str], str] = {}  # lanes by target and key
        self._outages: dict[str, Outage] = {}  # by lane

    async def take(self, event: LifecycleEvent) -> None:
        """Durable on return; idempotent. Raises TryAgain while the address of a callback is unknown, with all other
        notifications stored."""
        at = utc_now()
        await self.outbox.add(notifications.notifications_of(event, self.settings, at=at))
        self._wake.set()
        if event.has_callback and (url := await self.callback_of_run(event.run_id)):
            await self.outbox.add([notifications.callback_of(event, url, at=at)])
            self._wake.set()

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                with contextlib.suppress(TryAgain):
                    for notification in await self._due():
                        self._in_flight[notification.target, notification.key] = notification.lane
                        group.create_task(self._deliver(notification))
                await set_within(self._wake, self.look_s)

    async def _due(self) -> Sequence[Notification]:
        now, due = utc_now(), list[Notification]()
        busy = Counter(self._in_flight.values())
        for lane in await self.outbox.lanes_due(now):
            if (free := WIDTH - busy[lane]) > 0:
                found = await self.outbox.due(lane, now, 2 * WIDTH)
                due += [one for one in found if (one.target, one.key) not in self._in_flight][:free]
        return due

    async def _deliver(self, notification: Notification) -> None:
        try:
            if await self.outbox.claim(notification, utc_now()):
                await self._conclude(notification, await self._attempt(notification))
                self._wake.set()
        except TryAgain as error:
            log.warning("the outcome of a delivery is not recorded; it is made again", extra={"why": str(error)})
            await asyncio.sleep(error.delay_s)
        finally:
            del self._in_flight[notification.target, notification.key]

    async def _attempt(self, notification: Notification) -> Try:
        try:
            return await self.send(notification)
        except Exception as error:
            # A bug in one delivery may neither stop the others nor restart the gateway over and over.
            log.exception("a delivery failed unexpectedly", extra=_facts(notification))
            return Try("put_off", type(error).__name__)

    async def _conclude(self, notification: Notification, result: Try) -> None:
        tried, now = replace(notification, tries=notification.tries + 1), utc_now()
        outcome, why = result.outcome, result.why
        if outcome == "put_off":
            if due_at := notifications.next_try(tried, now=now, retry_after_s=result.after_s):
                await self.outbox.postpone(tried, due_at, why=why)
                self.count(tried.target, outcome)
                self._outages.setdefault(tried.lane, Outage(tried.lane, log)).continues(why)
                return
            outcome, why = "dead", f"given up after {tried.tries} tries: {why}"
        if outcome == "dead":
            try:
                await self.bury(tried, why)
            except TryAgain as error:
                await self.outbox.postpone(tried, now + BURY_AGAIN, why=f"{why}; {error}")
                return
        await self.outbox.settle(tried, "arrived" if outcome == "unheard" else outcome, at=now)
        self.count(tried.target, outcome)
        self._report(tried, outcome, why)

    def _report(self, tried: Notification, outcome: str, why: str) -> None:
        outage = self._outages.pop(tried.lane, None)
        if outcome == "dead":
            log.error("not delivered, and in the dead letters now", extra=_facts(tried) | {"why": why})
        elif outage:
            outage.over()
        if outcome == "unheard" and (tried.target, tried.type) not in self._unheard:
            self._unheard.add((tried.target, tried.type))
            log.warning("nothing in Ductile listens to %s: add a pipeline `on:` it", tried.type, extra=_facts(tried))


def _facts(notification: Notification) -> dict[str, object]:
    return {
        "run_id": notification.run_id,
        "event": notification.type,
        "to": notification.lane,
        "tries": notification.tries,
    }
