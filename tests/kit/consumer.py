"""Consumes a durable consumer by the pull loop, with a handler and a store of dead letters."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import nats.errors

from groundwork.nats.dead_letters import Notify
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery
from groundwork.nats.pull_loop import GRACE_SECONDS, Handler, PullLoop
from tests.kit.waiting import until


def unannounced(*_: object) -> None:
    pass


async def consume(link: NatsLink, stream: str, durable: str, handler: Handler, dead: str, *, slots: int) -> None:
    await PullLoop(link, stream, durable, handler, dead_letters=(dead, unannounced), slots=slots).run()


@contextlib.asynccontextmanager
async def consuming(
    link: NatsLink,
    handler: Handler,
    dead: str = "work.dead",
    notify: Notify = unannounced,
    *,
    slots: int = 10,
    grace_s: float = GRACE_SECONDS,
) -> AsyncIterator[PullLoop]:
    loop = PullLoop(link, "WORK", "workers", handler, dead_letters=(dead, notify), slots=slots, grace_s=grace_s)
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
