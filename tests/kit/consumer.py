"""Consumes a durable consumer by the pull loop, with a handler and a store of dead letters."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import nats.errors

from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import Delivery, Handler, Settler
from tests.kit.waiting import until


async def consume(link: NatsLink, stream: str, durable: str, handler: Handler, dead: str, *, slots: int) -> None:
    await PullLoop(Settler(link, stream, durable, handler, dead), slots=slots).run()


@contextlib.asynccontextmanager
async def consuming(
    link: NatsLink, handler: Handler, dead: str = "work.dead", *settled: Any, slots: int = 10, **how: Any
) -> AsyncIterator[PullLoop]:
    """Serves the consumer `workers` of the stream WORK. `settled` and `how` are further arguments of Settler and of
    PullLoop."""
    loop = PullLoop(Settler(link, "WORK", "workers", handler, dead, *settled), slots=slots, **how)
    running = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


class Seen:
    """Handler that records messages and waits while its gate, or that of a body, is closed."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.finished: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.gates: dict[str, asyncio.Event] = {}

    @property
    def bodies(self) -> list[str]:
        return [delivery.body.decode() for delivery in self.deliveries]

    @property
    def given(self) -> list[tuple[str, int]]:
        """Bodies in order, with the delivery number of each."""
        return sorted((delivery.body.decode(), delivery.delivered) for delivery in self.deliveries)

    async def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        await self.gates.get(delivery.body.decode(), self.gate).wait()
        self.finished.append(delivery.body.decode())


async def publish(link: NatsLink, *bodies: str) -> None:
    """Publishes each body under its own id."""
    await asyncio.gather(
        *(link.publish(f"work.{body}", body.encode(), msg_id=body, headers={"Name": body}) for body in bodies)
    )


async def left(link: NatsLink, *, in_hand: Callable[[int], bool] = lambda number: number == 0) -> None:
    """Waits until the consumer has that many messages in hand (by default none), and then none to deliver."""

    async def so_many() -> bool:
        with contextlib.suppress(nats.errors.Error):  # while the server is away
            info = await link.client.jetstream().consumer_info("WORK", "workers")
            pending = info.num_ack_pending or 0
            return in_hand(pending) and bool(pending or not info.num_pending)
        return False

    await until(so_many)
