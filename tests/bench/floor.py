"""Lower bound for a machine: requests and results over its bus without decisions, storage or checks.

A driver publishes requests under unique ids to a stream with the server's sync interval; a worker process answers
each with a result; the driver consumes it durably and requests the next step. Link and pull loop are those of the
services, so everything above the floor is the services' own work.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import Delivery
from groundwork.nats.pull_loop import Handler
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import Spec, set_up
from tests.kit.consumer import consume

STREAM, REQUEST, RESULT, BURIED = "FLOOR", "floor.request", "floor.result", "floor.buried"
REQUEST_BYTES, RESULT_BYTES = 770, 790
"""Sizes of the messages of a benchmarked step, headers included."""
ADDRESS = "FLOOR_NATS_URL"
SLOTS = 256
WARM_UP_STEPS = 200
STORED = {"subjects": ["floor.>"], "duplicate_window": 3600.0, "max_bytes": 1 << 28}
CONSUMERS = tuple(
    Spec(STREAM, {"filter_subjects": [subject], "max_ack_pending": SLOTS}, subject.removeprefix("floor."))
    for subject in (REQUEST, RESULT)
)


class Floor:
    """Made by `floor`. Ids of steps are unique across measurements."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._answered: dict[str, asyncio.Future[None]] = {}
        self._numbers = iter(range(sys.maxsize))

    async def steps(self, number: int, concurrency: int) -> tuple[float, list[float]]:
        """Makes `number` steps, `concurrency` at a time; returns the total seconds and those of each step."""
        waiting, taken = iter(range(number)), list[float]()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._one_after_another(waiting, taken))
        return time.perf_counter() - began, taken

    async def _one_after_another(self, waiting: Iterator[int], taken: list[float]) -> None:
        for _ in waiting:
            key = str(next(self._numbers))
            answer = self._answered[key] = asyncio.get_running_loop().create_future()
            began = time.perf_counter()
            await self._link.publish(REQUEST, key.encode().ljust(REQUEST_BYTES), msg_id=f"request:{key}", headers={})
            await answer
            taken.append(time.perf_counter() - began)

    async def take(self, delivery: Delivery) -> None:
        self._answered.pop(delivery.body.decode().strip()).set_result(None)


@asynccontextmanager
async def floor(*urls: str, replicas: int = 1) -> AsyncIterator[Floor]:
    """Driver and worker, on a server or on a cluster with that many replicas."""
    async with connect(NatsSettings(urls=urls), "agentic-floor") as link:
        stream = Spec(STREAM, STORED | {"num_replicas": replicas})
        await set_up(link, (stream, *CONSUMERS))
        environ = os.environ | {ADDRESS: " ".join(urls)}  # not an argument, which everybody on this machine could read
        worker = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, env=environ)
        made = Floor(link)
        loop = asyncio.create_task(_consume(link, "result", made.take))
        try:
            await made.steps(WARM_UP_STEPS, SLOTS)
            yield made
        finally:
            worker.terminate()
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
            await worker.wait()


async def _consume(link: NatsLink, durable: str, handler: Handler) -> None:
    await consume(link, STREAM, durable, handler, BURIED, slots=SLOTS)


async def work(*urls: str) -> None:
    async with connect(NatsSettings(urls=urls), "agentic-floor-worker") as link:

        async def answer(delivery: Delivery) -> None:
            key = delivery.body.decode().strip()
            await link.publish(RESULT, key.encode().ljust(RESULT_BYTES), msg_id=f"result:{key}", headers={})

        await _consume(link, "request", answer)


if __name__ == "__main__":
    asyncio.run(work(*os.environ[ADDRESS].split()))
