"""Where spans go: kept until the SDK is loaded, which takes a fifth of a second that no call is to wait."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from groundwork.telemetry.settings import Receiver, TelemetrySettings
from groundwork.telemetry.span import Span
from schemas import subjects

if TYPE_CHECKING:
    from groundwork.telemetry.traces import SpanQueue

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
    kept = _Kept()
    opening = asyncio.create_task(_pass_on(kept, receiver, head_start))
    try:
        yield kept.ended
    finally:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await kept.close()


async def _pass_on(kept: "_Kept", receiver: Receiver, head_start: Callable[[], Awaitable[None]]) -> None:
    await head_start()
    kept.pass_on(await asyncio.to_thread(_queue, receiver))


def _queue(receiver: Receiver) -> "SpanQueue":
    from groundwork.telemetry.sending import resource_of
    from groundwork.telemetry.traces import SpanQueue

    return SpanQueue(receiver, resource_of(subjects.SERVICE_GATEWAY))


class _Kept:
    def __init__(self) -> None:
        self._spans = deque[Span](maxlen=MOST_KEPT)
        self._queue: SpanQueue | None = None

    def ended(self, span: Span) -> None:
        if self._queue:
            self._queue.ended(span)
        else:
            self._spans.append(span)

    def pass_on(self, queue: "SpanQueue") -> None:
        self._queue = queue
        while self._spans:
            queue.ended(self._spans.popleft())

    async def close(self) -> None:
        if self._queue:
            await asyncio.to_thread(self._queue.close)
