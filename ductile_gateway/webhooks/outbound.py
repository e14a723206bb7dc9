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
from typing import Protocol

from ductile_gateway.ports import Clock
from ductile_gateway.store.outbox import OwedNotifications
from ductile_gateway.webhooks.lifecycle import LifecycleEvent
from ductile_gateway.webhooks.notifications import Notification, Try, callback_of, next_try, notifications_of
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
_UnderWay = dict[tuple[str, str], asyncio.Task[None]]

log = logging.getLogger(__name__)


class Sender(Protocol):
    async def send(self, notification: Notification) -> Try:
        """Try once. The number of tries and the time between them are the caller's affair."""


class OutboundBus(Protocol):
    async def callback_of(self, run_id: str) -> str | None:
        """Where the run wants to be told of; None where nobody knows of such a wish. Raises TryAgain for now."""

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
        """How many relayed events nobody listened to in a Ductile, by target and type."""
        self._settings = settings
        self._outbox = outbox
        self._sender = sender
        self._bus = bus
        self._clock = clock
        self._look_s = look_s
        self._wake = asyncio.Event()
        self._busy: set[str] = set()
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

    def look(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                with contextlib.suppress(TryAgain):
                    for lane in set(await self._outbox.lanes_due(self._clock.now())) - self._busy:
                        self._busy.add(lane)
                        group.create_task(self._serve(lane))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_s):  # wait_for can lose a cancellation
                        await self._wake.wait()

    async def _serve(self, lane: str) -> None:
        under_way: _UnderWay = {}
        async with asyncio.TaskGroup() as group:
            while await self._more(lane, under_way, group):
                await asyncio.wait(under_way.values(), timeout=self._look_s, return_when=asyncio.FIRST_COMPLETED)
        self._busy.discard(lane)

    async def _more(self, lane: str, under_way: _UnderWay, group: asyncio.TaskGroup) -> bool:
        for name in [name for name, task in under_way.items() if task.done()]:
            del under_way[name]
        with contextlib.suppress(TryAgain):
            for notification in await self._outbox.due(lane, self._clock.now(), 2 * WIDTH):
                name = notification.target, notification.key
                if len(under_way) < WIDTH and name not in under_way:
                    under_way[name] = group.create_task(self._deliver(notification))
        return bool(under_way)

    async def _deliver(self, notification: Notification) -> None:
        try:
            if await self._outbox.claim(notification):
                await self._conclude(notification, await self._tried(notification))
        except TryAgain as error:
            log.warning("what became of a delivery is not recorded; it is made again", extra={"why": str(error)})
            await asyncio.sleep(error.delay_s)

    async def _tried(self, notification: Notification) -> Try:
        try:
            return await self._sender.send(notification)
        except Exception as error:
            # A surprise in one delivery may neither stop the others nor make the gateway start over and over.
            log.exception("a delivery failed unexpectedly", extra=_named(notification))
            return Try("put_off", type(error).__name__)

    async def _conclude(self, notification: Notification, result: Try) -> None:
        tried = replace(notification, tries=notification.tries + 1)
        if result.outcome == "put_off":
            await self._put_off(tried, result)
        elif result.outcome == "dead":
            await self._bury(tried, result.why)
        else:
            await self._outbox.settle(tried, "gone" if result.outcome == "gone" else "arrived", at=self._clock.now())
            self._told(tried.target, result.outcome)
            if outage := self._away.pop(tried.lane, None):
                outage.over()
            if result.outcome == "gone":
                log.warning("the receiver wants nothing more of this run (410)", extra=_named(tried))
            elif result.outcome == "unheard":
                self._count_unheard(tried.target, tried.type)

    def _count_unheard(self, target: str, event: str) -> None:
        if not self.unheard[target, event]:
            log.warning("nobody in Ductile listens to %s: add a pipeline `on:` it", event, extra={"to": target})
        self.unheard[target, event] += 1

    async def _put_off(self, tried: Notification, result: Try) -> None:
        due_at = next_try(tried, now=self._clock.now(), wish_s=result.after_s)
        if due_at is None:
            await self._bury(tried, f"given up after {tried.tries} tries: {result.why}")
            return
        await self._outbox.postpone(tried, due_at, why=result.why)
        self._told(tried.target, "put_off")
        self._away.setdefault(tried.lane, Outage(tried.lane, log)).goes_on(result.why)
        log.debug("to be delivered later", extra=_named(tried) | {"why": result.why, "due_at": due_at.isoformat()})

    async def _bury(self, tried: Notification, why: str) -> None:
        try:
            await self._bus.bury(tried, why)
        except TryAgain as error:
            await self._outbox.postpone(tried, self._clock.now() + BURY_AGAIN, why=f"{why}; {error}")
            return
        await self._outbox.settle(tried, "dead", at=self._clock.now())
        self._told(tried.target, "dead")
        self._away.pop(tried.lane, None)
        log.error("not delivered, and in the dead letters now", extra=_named(tried) | {"why": why})


def _named(notification: Notification) -> dict[str, object]:
    return {
        "run_id": notification.run_id,
        "event": notification.type,
        "to": notification.lane,
        "tries": notification.tries,
    }
