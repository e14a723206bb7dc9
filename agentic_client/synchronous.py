"""The client for programs without an event loop: it keeps one in a thread of its own, and the AsyncClient on it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, Self, TypeVar, Unpack

from agentic_client.asynchronous import AsyncClient, Options
from agentic_client.calls import Answer, Order, Ruling, Which, Wishes
from agentic_client.errors import closed
from agentic_client.views import Accepted, Event, File, Run, RunPage, Status, Tool

T = TypeVar("T")


class Client:
    """AsyncClient for programs without an event loop; several threads may use it. Closed on leaving."""

    def __init__(self, url: str | None = None, **options: Unpack[Options]) -> None:
        self._client = AsyncClient(url, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentic-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._done(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, goal: str, *, timeout_s: float | None = None, **order: Unpack[Order]) -> Run:
        return self._done(self._client.run(goal, timeout_s=timeout_s, **order))

    def wake(self, goal: str, **order: Unpack[Order]) -> Accepted:
        return self._done(self._client.wake(goal, **order))

    def wait(self, run: Which, *, timeout_s: float | None = None, through_pauses: bool = False) -> Run:
        return self._done(self._client.wait(run, timeout_s=timeout_s, through_pauses=through_pauses))

    def show(self, run: Which) -> Run:
        return self._done(self._client.show(run))

    def runs(self, *, limit: int = 50, cursor: str | None = None, **wishes: Unpack[Wishes]) -> RunPage:
        return self._done(self._client.runs(limit=limit, cursor=cursor, **wishes))

    def events(self, run: Which, *, after: int = 0) -> Iterator[Event]:
        events = self._client.events(run, after=after)
        try:
            while (event := self._done(_next(events))) is not None:
                yield event
        finally:
            self._done(events.aclose())

    def approve(self, run: Which, **ruling: Unpack[Ruling]) -> Status:
        return self._done(self._client.approve(run, **ruling))

    def reject(self, run: Which, **ruling: Unpack[Ruling]) -> Status:
        return self._done(self._client.reject(run, **ruling))

    def answer(self, run: Which, answer: str | None = None, **more: Unpack[Answer]) -> Status:
        return self._done(self._client.answer(run, answer, **more))

    def say(self, run: Which, message: str, *, signal_id: str | None = None, by: str | None = None) -> Status:
        return self._done(self._client.say(run, message, signal_id=signal_id, by=by))

    def tools(self) -> tuple[Tool, ...]:
        return self._done(self._client.tools())

    def cancel(self, run: Which, *, reason: str | None = None) -> Status:
        return self._done(self._client.cancel(run, reason=reason))

    def files(self, run: Which) -> tuple[File, ...]:
        return self._done(self._client.files(run))

    def artifacts(self, run: Which) -> dict[str, bytes]:
        return self._done(self._client.artifacts(run))

    def read(self, run: Which, path: str) -> bytes:
        return self._done(self._client.read(run, path))

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise closed()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)
