"""Sends the spans of a run to a receiver when the run ends or rests.

The journal is the buffer: the queue holds a run, and the instant from which on its spans are to be sent. After a crash,
a long outage, or the death of another agent of the store, spans are sent again from a mark on. They are the same to the
byte, so a backend drops those that it has.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from agent_service.errors import Damaged
from agent_service.history.history import rests
from agent_service.run.changes import ChangeRecord, Journals
from agent_service.run.journal import Entry
from agent_service.trust.identity import trace_id
from agent_service.views.spans.trace import Content, stretch
from groundwork.service import store_folder
from groundwork.service.machine import in_daemon_thread, utc_now
from groundwork.telemetry.settings import Keeps
from groundwork.telemetry.span import Span

MOST_WAITING = 16_384
LONGEST_BACK = timedelta(days=1)
RUNS_AT_ONCE = 16
AT_ONCE = 256
"""Spans of one request: at their largest still less than receivers take."""
SOON_S = 1.0
"""Runs that end or rest within it are sent together."""
PAUSE_S = 5.0
"""Between two attempts while the receiver is away."""
FINISH_S = 2.0

log = logging.getLogger(__name__)

Send = Callable[[Sequence[Span]], bool]
"""True when the receiver took the spans. Blocks until that is known."""


class TraceSource(Journals, Protocol):
    async def changed_since(self, since: datetime) -> Sequence[str]:
        """Owned runs with an entry at or after `since`."""


MARGIN = timedelta(seconds=60)
"""An entry's instant may be so much earlier than its commit."""


class TraceMark:
    """How far runs have been traced, as the time of an empty file. Its methods raise nothing: nothing of the past is
    caught up with where there is none.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, at: datetime) -> None:
        """All that was committed before `at` is done."""
        with suppress(OSError):
            store_folder.folder_of_ours(self._file.parent)
            self._file.touch(mode=0o600)
            os.utime(self._file, (at.timestamp(), at.timestamp()))

    def since(self, now: datetime) -> datetime:
        """Runs with an entry from then on may have to be caught up with. The first mark is made here."""
        try:
            noted = datetime.fromtimestamp(self._file.stat().st_mtime, UTC)
        except OSError:
            self.note(now)
            noted = now
        return min(noted, now) - MARGIN


class Traces:
    def __init__(
        self, store: TraceSource, send: Send, mark: TraceMark, *, keeps: Keeps, content: Content | None
    ) -> None:
        self._store = store
        self._send = send
        self._mark = mark
        self._keeps = keeps
        self._content = content
        self._waiting: dict[str, datetime] = {}
        """By run: the instant from which on its spans are to be sent."""
        self._missed = True
        """True when runs must be sent again from the mark on."""
        self._something = asyncio.Event()

    def committed(self, change: ChangeRecord) -> None:
        if rests(change):
            self._mark_due(change.entry.run_id, change.at)

    def send_again(self, run_id: str) -> None:
        """Spans of the last minute of another agent, which is dead and may not have sent them."""
        self._mark_due(run_id, utc_now() - MARGIN)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if await self._all_sent():
                self._something.clear()
                await self._something.wait()
                await asyncio.sleep(SOON_S)
            else:
                await asyncio.sleep(PAUSE_S)

    async def finish(self, within_s: float = FINISH_S) -> None:
        """Waits `within_s` seconds at most: the rest is sent after the next start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._all_sent()

    def _mark_due(self, run_id: str, since: datetime) -> None:
        if not self._keeps(trace_id(run_id)):
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting[run_id] = min(since, self._waiting.get(run_id, since))
        else:
            self._missed = True
        self._something.set()

    async def _all_sent(self) -> bool:
        try:
            now = utc_now()
            while self._waiting or self._missed:
                if self._missed:
                    since = max(self._mark.since(now), now - LONGEST_BACK)
                    moved = await self._store.changed_since(since)
                    self._missed = False
                    self._waiting |= {run_id: since for run_id in moved if self._keeps(trace_id(run_id))}
                if not await self._sent():
                    return False
        except Exception:  # an observer's error must not end the agent
            log.exception("traces are not sent, tried again")
            return False
        self._mark.note(now)
        return True

    async def _sent(self) -> bool:
        """Sends the first runs of the queue; they stay there unless the receiver took them."""
        some, is_taken = dict(islice(self._waiting.items(), RUNS_AT_ONCE)), False
        for run_id in some:
            del self._waiting[run_id]
        try:
            journals = [(await self._store.entries(run_id), since) for run_id, since in some.items()]
            is_taken = await in_daemon_thread(partial(self._send_all, journals), name="traces")
        finally:
            if not is_taken:
                self._waiting |= some
        return is_taken

    def _send_all(self, journals: Iterable[tuple[Sequence[Entry], datetime]]) -> bool:
        spans = [span for entries, since in journals for span in self._spans(entries, since)]
        return all(self._send(spans[i : i + AT_ONCE]) for i in range(0, len(spans), AT_ONCE))

    def _spans(self, entries: Sequence[Entry], since: datetime) -> Sequence[Span]:
        try:
            return stretch(entries, since=since, content=self._content)
        except Damaged:  # who reads its files is told
            return ()
        except Exception:
            log.exception("a trace cannot be told", extra={"run_id": entries[0].run_id})
            return ()
