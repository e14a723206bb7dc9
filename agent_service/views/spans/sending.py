"""Sends the traces of runs to a receiver: of each run what ended since its last rest, once it ends or rests again.

The journal is the buffer: what waits is the number of an entry. After a crash, an outage that lasted too long, or the
death of another agent of the store, runs are told again from a mark on. Their spans are the same to the byte, so a
backend drops those that it has.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from agent_service.errors import Damaged
from agent_service.run.journal import Entry
from agent_service.run.moments import Journals, Moment
from agent_service.trust.identity import trace_id
from agent_service.views.mark import MARGIN, Mark
from agent_service.views.spans.attributes import Content
from agent_service.views.spans.trace import rests, stretch
from groundwork.service.machine import utc_now
from groundwork.telemetry.beside import beside
from groundwork.telemetry.settings import Keeps
from groundwork.telemetry.span import Span

MOST_WAITING = 16_384
LONGEST_BACK = timedelta(days=1)
RUNS_AT_ONCE = 16
AT_ONCE = 256
"""Spans of one request: with all that they may hold, less than receivers take at once."""
SOON_S = 1.0
"""Runs that end or rest within it are sent together."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Between two tries while the receiver is away."""

FINISH_S = 2.0

log = logging.getLogger(__name__)

Send = Callable[[Sequence[Span]], bool]
"""Whether the receiver took the spans; blocks until that is known."""


class Store(Journals, Protocol):
    async def moved_since(self, since: datetime) -> Sequence[tuple[str, bool]]:
        """Owned runs with an entry at or after `since`."""


class _Due(NamedTuple):
    """A run's entries up to `seq`, or all where that is None, from `since` or else its last rest on."""

    run_id: str
    seq: int | None
    since: datetime | None


class Traces:
    def __init__(self, store: Store, send: Send, mark: Mark, *, keeps: Keeps, content: Content | None) -> None:
        self._store = store
        self._send = send
        self._mark = mark
        self._keeps = keeps
        self._content = content
        self._waiting: deque[_Due] = deque()
        self._missed = True
        """Whether runs have to be told again from the mark on."""
        self._something = asyncio.Event()

    def committed(self, moment: Moment) -> None:
        if rests(moment):
            self._mark_due(_Due(moment.after.run_id, moment.entry.seq, None))

    def tell_again(self, run_ids: Sequence[str]) -> None:
        """What another agent committed of late, which is dead and may not have sent it."""
        since = utc_now() - MARGIN
        for run_id in run_ids:
            self._mark_due(_Due(run_id, None, since))

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            if await self._all_sent():
                pause_s = FIRST_PAUSE_S
                self._something.clear()
                await self._something.wait()
                await asyncio.sleep(SOON_S)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def finish(self, within_s: float = FINISH_S) -> None:
        """Waits `within_s` seconds at most: the rest is told after the next start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._all_sent()

    def _mark_due(self, due: _Due) -> None:
        if not self._keeps(trace_id(due.run_id)):
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(due)
        else:
            self._missed = True
        self._something.set()

    async def _all_sent(self) -> bool:
        try:
            now = utc_now()
            while self._waiting or self._missed:
                if self._missed:
                    await self._catch_up(now)
                if not await self._sent(list(self._waiting)[:RUNS_AT_ONCE]):
                    return False
        except Exception:  # an observer's error must not end the agent
            log.exception("traces are not sent, tried again")
            return False
        self._mark.note(now)
        return True

    async def _catch_up(self, now: datetime) -> None:
        since = max(self._mark.since(now), now - LONGEST_BACK)
        moved = await self._store.moved_since(since)
        self._missed = False
        self._waiting.extend(_Due(run_id, None, since) for run_id, _ in moved if self._keeps(trace_id(run_id)))

    async def _sent(self, some: Sequence[_Due]) -> bool:
        """Of `some` that wait first; they go on waiting where the receiver did not take them."""
        journals = [(due, await self._store.entries(due.run_id, limit=due.seq)) for due in some]

        def work() -> bool:
            spans = [span for due, entries in journals for span in self._spans(due, entries)]
            batches = (spans[i : i + AT_ONCE] for i in range(0, len(spans), AT_ONCE))
            return all(map(self._send, batches))

        if not await beside(work, what="traces"):
            return False
        for _ in some:
            self._waiting.popleft()
        return True

    def _spans(self, due: _Due, entries: Sequence[Entry]) -> Sequence[Span]:
        try:
            return stretch(entries, since=due.since, content=self._content)
        except Damaged:  # who reads its files is told
            return ()
        except Exception:
            log.exception("a trace cannot be told", extra={"run_id": due.run_id})
            return ()
