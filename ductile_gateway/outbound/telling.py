"""Tells others what becomes of runs: Ductile's relay ingress, the callback of a run, subscribers.

    bus ─▶ take: one row per receiver, durably ─▶ acknowledged ─▶ send ─▶ settle
                                                     ▲                └─▶ not yet: again, ever later
                                                     └─ after a restart   never, or for too long: the dead letters

Rules: receivers wait for nobody but themselves; of one run a receiver is sent one event at a time, in order. A crash
between `send` and `settle` sends again, under the same id. What it is not: the order of the events of several runs.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from ductile_gateway.errors import TryAgain
from ductile_gateway.outbound.deliveries import (
    RELAY,
    Arrived,
    Audience,
    Delivery,
    Gone,
    Never,
    NotYet,
    Verdict,
    callback_of,
    deliveries_of,
)
from ductile_gateway.outbound.lifecycle import LifecycleEvent
from ductile_gateway.outbound.ports import Callbacks, DeadLetters, Outbox, Sender
from ductile_gateway.outbound.retry_schedule import next_try
from ductile_gateway.ports import Clock

LOOK_S = 1.0
"""How often the outbox is asked what is due, besides whenever something new has come."""
WIDTH = 4
"""Deliveries to one receiver at the same time, each of another run."""
BURY_AGAIN = timedelta(seconds=30)

_UnderWay = dict[tuple[str, str], asyncio.Task[None]]

log = logging.getLogger(__name__)


class Outbound:
    """Takes events and delivers them. `relay` is None where there is no Ductile to relay to."""

    def __init__(
        self,
        audience: Audience,
        outbox: Outbox,
        *,
        relay: Sender | None,
        callbacks: Sender,
        addresses: Callbacks,
        dead_letters: DeadLetters,
        clock: Clock,
        look_s: float = LOOK_S,
    ) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How many deliveries ended how: by target, and `arrived`, `gone` or `dead`."""
        self.unheard: Counter[str] = Counter()
        """How many relayed events nobody listened to in Ductile, by type."""
        self._audience = audience
        self._outbox = outbox
        self._relay = relay
        self._callbacks = callbacks
        self._addresses = addresses
        self._dead_letters = dead_letters
        self._clock = clock
        self._look_s = look_s
        self._wake = asyncio.Event()
        self._busy: set[str] = set()

    async def take(self, event: LifecycleEvent) -> None:
        """Everybody who is to be told will be: on return that is durable. An event that comes again changes nothing.

        Raises TryAgain where only the address of a callback is missing: the others are told meanwhile.
        """
        at = self._clock.now()
        await self._add(deliveries_of(event, self._audience, at=at))
        if event.has_callback and not event.callback:
            url = await self._addresses.of(event.run_id)
            await self._add([callback_of(event, url, at=at)] if url else [])

    async def _add(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self._outbox.add(deliveries)
            self._wake.set()

    async def run(self) -> None:
        """Deliver until cancelled. Raises Broken."""
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
        """Whatever is due in one lane, until nothing is."""
        under_way: _UnderWay = {}
        async with asyncio.TaskGroup() as group:
            while await self._more(lane, under_way, group):
                await asyncio.wait(under_way.values(), timeout=self._look_s, return_when=asyncio.FIRST_COMPLETED)
        self._busy.discard(lane)

    async def _more(self, lane: str, under_way: _UnderWay, group: asyncio.TaskGroup) -> bool:
        """Begin what is due where there is room for it; False if nothing is under way then."""
        for name in [name for name, task in under_way.items() if task.done()]:
            del under_way[name]
        with contextlib.suppress(TryAgain):
            for delivery in await self._outbox.due(lane, self._clock.now(), 2 * WIDTH):
                name = delivery.target, delivery.key
                if len(under_way) < WIDTH and name not in under_way:
                    under_way[name] = group.create_task(self._deliver(delivery))
        return bool(under_way)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await self._conclude(delivery, await self._tried(delivery))
        except TryAgain as error:
            log.warning("what became of a delivery is not recorded; it is made again", extra={"why": str(error)})
            await asyncio.sleep(error.delay_s)

    async def _tried(self, delivery: Delivery) -> Verdict:
        sender = self._relay if delivery.target == RELAY else self._callbacks
        if sender is None:
            return Never("there is no gateway.outbound.relay in the configuration any more")
        try:
            return await sender.send(delivery)
        except Exception as error:
            # A surprise in one delivery may neither stop the others nor make the gateway start over and over.
            log.exception("a delivery failed unexpectedly", extra=_named(delivery))
            return NotYet(type(error).__name__)

    async def _conclude(self, delivery: Delivery, verdict: Verdict) -> None:
        tried = replace(delivery, tries=delivery.tries + 1)
        match verdict:
            case Arrived():
                await self._outbox.settle(tried, "arrived", at=self._clock.now())
                self._count(tried, heard=verdict.heard)
            case Gone():
                await self._outbox.settle(tried, "gone", at=self._clock.now())
                self.outcomes[tried.target, "gone"] += 1
                log.warning("the receiver wants nothing more of this run (410)", extra=_named(tried))
            case NotYet():
                await self._put_off(tried, verdict)
            case Never():
                await self._bury(tried, verdict.why)

    def _count(self, delivery: Delivery, *, heard: bool) -> None:
        self.outcomes[delivery.target, "arrived"] += 1
        if not heard:
            if not self.unheard[delivery.type]:
                log.warning("nobody in Ductile listens to %s: add a pipeline `on:` it", delivery.type)
            self.unheard[delivery.type] += 1

    async def _put_off(self, tried: Delivery, verdict: NotYet) -> None:
        due_at = next_try(tried, now=self._clock.now(), wish_s=verdict.after_s)
        if due_at is None:
            await self._bury(tried, f"given up after {tried.tries} tries: {verdict.why}")
            return
        await self._outbox.postpone(tried, due_at, why=verdict.why)
        log.info("to be delivered later", extra=_named(tried) | {"why": verdict.why, "due_at": due_at.isoformat()})

    async def _bury(self, tried: Delivery, why: str) -> None:
        try:
            await self._dead_letters.bury(tried, why)
        except TryAgain as error:
            await self._outbox.postpone(tried, self._clock.now() + BURY_AGAIN, why=f"{why}; {error}")
            return
        await self._outbox.settle(tried, "dead", at=self._clock.now())
        self.outcomes[tried.target, "dead"] += 1
        log.error("not delivered, and in the dead letters now", extra=_named(tried) | {"why": why})


def _named(delivery: Delivery) -> dict[str, object]:
    """A delivery for the log: of its URL no more than the lane tells, for the rest may be a secret."""
    return {"run_id": delivery.run_id, "event": delivery.type, "to": delivery.lane, "tries": delivery.tries}
