"""Follows events of runs on the bus: those of one run are taken one after another, in the order of their stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import field
from weakref import WeakValueDictionary

from ductile_gateway.bus.incoming import rejection_notice
from ductile_gateway.trust import NotFromAgent, Trust
from ductile_gateway.webhooks.notifications import LifecycleEvent, NotARunEvent, read_event
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import Delivery, Settler
from groundwork.service import strict
from groundwork.service.errors import GiveUp, TryAgain
from groundwork.service.machine import monotonic
from schemas import envelope as headers
from schemas import subjects
from schemas.values import dataclass

SLOTS = 16
BEHIND_S, COMES_AGAIN_S = 0.5, 30.0
"""Delay of an event behind one that was put off; and the time after which that one is lost."""

Take = Callable[[LifecycleEvent], Awaitable[None]]


async def follow_events(link: NatsLink, stream: str, durable: str, *, trust: Trust, take: Take) -> None:
    """Acknowledges a message when `take` has returned. Messages that the agent did not sign are dead letters."""
    order = RunOrder()

    async def handle(delivery: Delivery) -> None:
        signature, again = delivery.headers.get(headers.SIGNATURE), delivery.delivered > 1
        if signature is None and delivery.subject == subjects.PROGRESS:
            return  # the agent signs progress only once it knows that somebody wants it
        try:
            async with order.kept(delivery.headers.get(headers.RUN_ID, ""), delivery.seq):
                await trust.check(delivery.subject, delivery.body, signature, again=again)
                await take(read_event(delivery.subject, strict.read(delivery.body), at=delivery.at))
        except (NotFromAgent, NotARunEvent, strict.NotStrictJson) as error:
            raise GiveUp(str(error)) from error

    settler = Settler(link, stream, durable, handle, subjects.DEAD_LETTERS_OUTBOUND, notify=rejection_notice)
    await PullLoop(settler, slots=SLOTS).run()


@dataclass(eq=False)
class RunOrder:
    """`_put_off`: by run, the sequences of events that were put off, and when."""

    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _put_off: dict[str, dict[int, float]] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def kept(self, run_id: str, seq: int) -> AsyncIterator[None]:
        """Enters once earlier events of the run that are in hand are done. Raises TryAgain if one was put off."""
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            began_at, found = monotonic(), self._put_off.pop(run_id, {})
            others = {one: at for one, at in found.items() if one != seq and began_at - at < COMES_AGAIN_S}
            try:
                _check_first(seq, others)
                yield
            except TryAgain:
                others[seq] = monotonic()
                raise
            finally:
                if others:
                    self._put_off[run_id] = others


def _check_first(seq: int, others: Iterable[int]) -> None:
    if min(others, default=seq) < seq:
        raise TryAgain("an earlier event of its run comes first", BEHIND_S)
