"""The client for programs without an event loop: it keeps one in a thread of its own, and the AsyncClient on it."""

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, Self, TypeVar, Unpack

from agentic_client.asynchronous import PATIENCE_S, AsyncClient
from agentic_client.calls import Answer, Order, Ruling, Which, Wishes
from agentic_client.errors import closed
from agentic_client.views import Accepted, Event, File, Run, RunPage, Status, Tool

T = TypeVar("T")


class Client:
    """An agent, by its HTTP API (`http://…`) or by the bus it is on (`nats://…`); closed on leaving.

    All that AsyncClient does, and says, in calls that return when it is done; may be used by several threads.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        creds_file: str | None = None,
        nkey_seed_file: str | None = None,
        inbox_prefix: str = "_INBOX",
        tls: ssl.SSLContext | None = None,
        allow_http_nonloopback: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._client = AsyncClient(
            url,
            token=token,
            creds_file=creds_file,
            nkey_seed_file=nkey_seed_file,
            inbox_prefix=inbox_prefix,
            tls=tls,
            allow_http_nonloopback=allow_http_nonloopback,
            patience_s=patience_s,
        )
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
        """Pursue a goal and wait until the run rests: see `wake` and `wait`."""
        return self._done(self._client.run(goal, timeout_s=timeout_s, **order))

    def wake(self, goal: str, **order: Unpack[Order]) -> Accepted:
        """Ask for a run; it is durable when this returns. The same `wake_id` names the same run again."""
        return self._done(self._client.wake(goal, **order))

    def wait(self, run: Which, *, timeout_s: float | None = None, through_pauses: bool = False) -> Run:
        """Wait until the run rests: it has ended, or (unless `through_pauses`) waits for a person.

        Raises StillRunning after `timeout_s` seconds; without it there is no end to waiting.
        """
        return self._done(self._client.wait(run, timeout_s=timeout_s, through_pauses=through_pauses))

    def show(self, run: Which) -> Run:
        return self._done(self._client.show(run))

    def runs(self, *, limit: int = 50, cursor: str | None = None, **wishes: Unpack[Wishes]) -> RunPage:
        """A page of runs, newest first, that all wishes apply to. `cursor` is the `next_cursor` of the page before."""
        return self._done(self._client.runs(limit=limit, cursor=cursor, **wishes))

    def events(self, run: Which, *, after: int = 0) -> Iterator[Event]:
        """The entries of the run's journal as they come, each once, from after entry `after` to the end of the run."""
        events = self._client.events(run, after=after)
        try:
            while (event := self._done(_next(events))) is not None:
                yield event
        finally:
            self._done(events.aclose())

    def approve(self, run: Which, **ruling: Unpack[Ruling]) -> Status:
        """Allow what the run asks for, and return its status. Without `arguments_hash` it is what it asks for now."""
        return self._done(self._client.approve(run, **ruling))

    def reject(self, run: Which, **ruling: Unpack[Ruling]) -> Status:
        """Refuse what the run asks for, for a `reason` that it is told. Returns its status."""
        return self._done(self._client.reject(run, **ruling))

    def answer(self, run: Which, answer: str | None = None, **more: Unpack[Answer]) -> Status:
        """Answer its question, or its escalation, which sets it going again, with a higher budget if given."""
        return self._done(self._client.answer(run, answer, **more))

    def say(self, run: Which, message: str, *, signal_id: str | None = None, by: str | None = None) -> Status:
        """Tell the run something that it did not ask for: it counts with its next decision. Returns its status."""
        return self._done(self._client.say(run, message, signal_id=signal_id, by=by))

    def tools(self) -> tuple[Tool, ...]:
        return self._done(self._client.tools())

    def cancel(self, run: Which, *, reason: str | None = None) -> Status:
        """End the run now. Repeating it changes nothing; one that has ended otherwise is a Conflict."""
        return self._done(self._client.cancel(run, reason=reason))

    def files(self, run: Which) -> tuple[File, ...]:
        """What lies in the run's folder: its paper trail, a moment after it happened, and its artifacts."""
        return self._done(self._client.files(run))

    def artifacts(self, run: Which) -> dict[str, bytes]:
        """What the run made: the content of each by its path, as soon as its journal names it."""
        return self._done(self._client.artifacts(run))

    def read(self, run: Which, path: str) -> bytes:
        """The content of one of its files, by the path that `files` and `Run.artifacts` say."""
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
