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
from datetime import timedelta
from typing import NoReturn, Protocol

from ductile_gateway.ports import Clock
from ductile_gateway.store.outbox import OwedNotifications
from ductile_gateway.webhooks.notifications import (
    LifecycleEvent,
    Notification,
    Try,
    callback_of,
    next_try,
    notifications_of,
)
from ductile_gateway.webhooks.outbound_settings import OutboundSettings
from groundwork.service.errors import TryAgain
from groundwork.service.json_log import Outage
from schemas.values import replace

LOOK_S = 1.0
WIDTH = 4
"""Requests to one receiver in flight at the same time, each of another run."""
BURY_AGAIN = timedelta(seconds=30)

Told = Callable[[str, str], None]
"""Takes the target of a try to deliver, and its outcome."""

log = logging.getLogger(__name__)


class Sender(Protocol):
    async def send(self, notification: Notification) -> Try:
        """Try once. The number of tries and the time between them are the caller's affair."""


class OutboundBus(Protocol):
    async def callback_of(self, run_id: str) -> str | None:
        """Where the run wants to be told of; None where there is no such wish. Raises TryAgain for now."""

    async def bury(self, notification: Notification, why: str) -> None:
        """Durably among the dead letters; twice is harmless. Raises TryAgain."""


class Outbound:
    def __init__(
        self,
        settings: OutboundSettings,
        outbox: OwedNotifications,
        sender: Sender,
        bus: OutboundBus,
        *,
        clock: Clock,
        told: Told,
        look_s: float = LOOK_S,
    ) -> None:
        self._told = told
        self.unheard: Counter[tuple[str, str]] = Counter()
        """How many relayed events nothing listened to in a Ductile, by target and type."""
        self._settings = settings
        self._outbox = outbox
        self._sender = sender
        self._bus = bus
        self._clock = clock
        self._look_s = look_s
        self._wake = asyncio.Event()
        self._under_way: dict[tuple[str, str], str] = {}
        """By target and key: the lanes."""
        self._away: dict[str, Outage] = {}
        """By lane: receivers that did not take what they were sent last."""

    async def take(self, event: LifecycleEvent) -> None:
        """Durable on return; idempotent. Raises TryAgain where only the address of a callback is missing: the others
        are told."""
        at = self._clock.now()
        await self._add(notifications_of(event, self._settings, at=at))
        if event.has_callback:
            url = await self._bus.callback_of(event.run_id)
            await self._add([callback_of(event, url, at=at)] if url else [])

    async def _add(self, notifications: Sequence[Notification]) -> None:
        if notifications:
            await self._outbox.add(notifications)
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
                    async with asyncio.timeout(self._look_s):  # wait_for can lose a cancellation
                        await self._wake.wait()

    async def _due(self) -> Sequence[Notification]:
        now, due = self._clock.now(), list[Notification]()
        busy = Counter(self._under_way.values())
        for lane in await self._outbox.lanes_due(now):
            if (room := WIDTH - busy[lane]) > 0:
                found = await self._outbox.due(lane, now, 2 * WIDTH)
                due += [one for one in found if (one.target, one.key) not in self._under_way][:room]
        return due

    async def _deliver(self, notification: Notification) -> None:
        try:
            if await self._outbox.claim(notification, self._clock.now()):
                await self._conclude(notification, await self._tried(notification))
                self._wake.set()
        except TryAgain as error:
            log.warning("what became of a delivery is not recorded; it is made again", extra={"why": str(error)})
            await asyncio.sleep(error.delay_s)
        finally:
            del self._under_way[notification.target, notification.key]

    async def _tried(self, notification: Notification) -> Try:
        try:
            return await self._sender.send(notification)
        except Exception as error:
            # A surprise in one delivery may neither stop the others nor make the gateway start over and over.
            log.exception("a delivery failed unexpectedly", extra=_named(notification))
            return Try("put_off", type(error).__name__)

    async def _conclude(self, notification: Notification, result: Try) -> None:
        tried, now = replace(notification, tries=notification.tries + 1), self._clock.now()
        outcome, why = result.outcome, result.why
        if outcome == "put_off":
            if due_at := next_try(tried, now=now, wish_s=result.after_s):
                await self._outbox.postpone(tried, due_at, why=why)
                self._told(tried.target, outcome)
                self._away.setdefault(tried.lane, Outage(tried.lane, log)).goes_on(why)
                return
            outcome, why = "dead", f"given up after {tried.tries} tries: {why}"
        if outcome == "dead":
            try:
                await self._bus.bury(tried, why)
            except TryAgain as error:
                await self._outbox.postpone(tried, now + BURY_AGAIN, why=f"{why}; {error}")
                return
        await self._outbox.settle(tried, "arrived" if outcome == "unheard" else outcome, at=now)
        self._told(tried.target, outcome)
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
