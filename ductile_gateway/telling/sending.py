"""Sends spans in batches, in the background: the SDK takes a fifth of a second to load, which no call is to wait."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from groundwork.service.beginning import loaded
from groundwork.service.machine import in_daemon_thread
from groundwork.telemetry.settings import Receiver, TelemetrySettings
from groundwork.telemetry.span import Span
from schemas import subjects

MOST_KEPT, AT_ONCE = 2048, 512
EVERY_S, LAST_WITHIN_S = 1.0, 2.0

Ended = Callable[[Span], None]
"""Takes a span that has ended; returns at once and raises nothing."""

log = logging.getLogger(__name__)


class _Sending:
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._send: Callable[[Sequence[Span]], bool] | None = None
        self.kept = deque[Span](maxlen=MOST_KEPT)

    async def keep_sending(self, head_start: Callable[[], Awaitable[None]]) -> None:
        await head_start()
        while True:
            await asyncio.sleep(EVERY_S)
            await self.send()

    async def send(self) -> None:
        try:
            while self.kept:
                await in_daemon_thread(self._send_batch, name="traces")
        except Exception:
            log.exception("spans are not sent")

    def _send_batch(self) -> None:
        if self._send is None:
            sender = loaded("groundwork.telemetry.sending:SpanSender")(self._receiver, subjects.SERVICE_GATEWAY)
            self._send = sender.send
        self._send([self.kept.popleft() for _ in range(min(AT_ONCE, len(self.kept)))])


@contextlib.asynccontextmanager
async def opened(
    settings: TelemetrySettings, *, head_start: Callable[[], Awaitable[None]]
) -> AsyncIterator[Ended | None]:
    """Takes spans inside the context; None where they go nowhere. The oldest are lost where too many wait. On leaving,
    what is left is sent."""
    receiver = settings.receiver("traces")
    if receiver is None:
        yield None
        return
    sending = _Sending(receiver)
    task = asyncio.create_task(sending.keep_sending(head_start))
    try:
        yield sending.kept.append
    finally:
        task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WITHIN_S):
                await sending.send()
