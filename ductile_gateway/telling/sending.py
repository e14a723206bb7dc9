"""Where spans go: kept until the SDK is loaded, which takes a fifth of a second that no call is to wait."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from groundwork.service.beginning import loaded
from groundwork.telemetry.settings import Receiver, TelemetrySettings
from groundwork.telemetry.span import Span
from schemas import subjects

if TYPE_CHECKING:
    from groundwork.telemetry.sending import SpanQueue

MOST_KEPT = 2048

Ended = Callable[[Span], None]
"""Takes a span that has ended; returns at once and raises nothing."""


@contextlib.asynccontextmanager
async def opened(
    settings: TelemetrySettings, *, head_start: Callable[[], Awaitable[None]]
) -> AsyncIterator[Ended | None]:
    """Takes spans inside the context; None where nobody is to be sent any. On leaving, what is left is sent."""
    receiver = settings.receiver("traces")
    if receiver is None:
        yield None
        return
    kept, queues = deque[Span](maxlen=MOST_KEPT), list["SpanQueue"]()

    def ended(span: Span) -> None:
        if queues:
            queues[0].ended(span)
        else:
            kept.append(span)

    async def load() -> None:
        await head_start()
        queues.append(await asyncio.to_thread(_queue, receiver))
        while kept:
            queues[0].ended(kept.popleft())

    loading = asyncio.create_task(load())
    try:
        yield ended
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        for queue in queues:
            await asyncio.to_thread(queue.close)


def _queue(receiver: Receiver) -> "SpanQueue":
    queue: SpanQueue = loaded("groundwork.telemetry.sending:SpanQueue")(receiver, subjects.SERVICE_GATEWAY)
    return queue
