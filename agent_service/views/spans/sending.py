"""Sends the spans of a run to a receiver when the run ends or rests.

The journal is the buffer: the queue holds run ids, each with the instant from which to send spans. After a crash, a
long outage, or the death of another agent of the store, spans since a mark are sent again. They are identical, so a
backend drops those that it has.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from agent_service.errors import Damaged, NewerVersion
from agent_service.history.history import rests
from agent_service.run.journal import Commit, Entry
from agent_service.store.runs import RunStore
from agent_service.trust.identity import trace_id
from agent_service.views.spans.trace import Content, spans_since_rest
from groundwork.service import store_folder
from groundwork.service.json_log import Outage
from groundwork.service.machine import in_daemon_thread, utc_now
from groundwork.telemetry.settings import Sampler
from groundwork.telemetry.span import Span

MAX_QUEUED = 16_384
MAX_CATCH_UP = timedelta(days=1)
RUNS_PER_BATCH = 16
SPANS_PER_REQUEST = 256
"""Spans per request; at their largest they stay below the limits of receivers."""
SOON_S = 1.0
"""Runs that end or rest within this time are sent together."""
PAUSE_S = 5.0
"""Pause between attempts while the receiver is away."""
FINISH_S = 2.0

log = logging.getLogger(__name__)

Send = Callable[[Sequence[Span]], bool]
"""Blocks; returns True if the receiver took the spans, or never will."""


MARGIN = timedelta(seconds=60)
"""Largest delay from the instant of an entry to its commit."""


class Traces:
    """`mark`: an empty file whose modification time is the instant up to which runs are traced. If it cannot be read or
    written, only new spans are sent.
    """

    def __init__(self, store: RunStore, send: Send, mark: Path, *, keeps: Sampler, content: Content | None) -> None:
        self._store = store
        self._send = send
        self._mark = mark
        self._keeps = keeps
        self._content = content
        self._waiting: dict[str, datetime] = {}
        """Instants from which to send spans, by run."""
        self._missed = True
        """True if all runs since the mark must be sent."""
        self._work = asyncio.Event()
        self._outage = Outage("the journal, from which traces are made,", log)

    def committed(self, change: Commit) -> None:
        if rests(change):
            self._enqueue(change.entry.run_id, change.at)

    def send_again(self, run_id: str) -> None:
        """Sends the last minute of a run again, because its agent died and may not have sent them."""
        self._enqueue(run_id, utc_now() - MARGIN)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if await self._send_waiting():
                self._work.clear()
                await self._work.wait()
                await asyncio.sleep(SOON_S)
            else:
                await asyncio.sleep(PAUSE_S)

    async def finish(self, within_s: float = FINISH_S) -> None:
        """Sends for up to `within_s` seconds; the rest follows after the next start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._send_waiting()

    def _enqueue(self, run_id: str, since: datetime) -> None:
        if not self._keeps(trace_id(run_id)):
            return
        if len(self._waiting) < MAX_QUEUED:
            self._add({run_id: since})
        else:
            self._missed = True
        self._work.set()

    def _add(self, runs: Mapping[str, datetime]) -> None:
        for run_id, since in runs.items():
            self._waiting[run_id] = min(since, self._waiting.get(run_id, since))

    async def _send_waiting(self) -> bool:
        now = utc_now()
        try:
            while self._waiting or self._missed:
                if self._missed:
                    await self._queue_missed(now)
                if not await self._send_batch():
                    return False
        except Exception as error:  # noqa: BLE001 - an observer's error must not end the agent
            self._outage.continues(repr(error))
            return False
        self._outage.over()
        self._set_mark(now)
        return True

    async def _queue_missed(self, now: datetime) -> None:
        since = max(self._marked(now), now - MAX_CATCH_UP)
        self._missed = False  # before the read: `_enqueue` may set it meanwhile
        try:
            moved = await self._store.changed_since(since)
        except BaseException:
            self._missed = True
            raise
        self._add({run_id: since for run_id in moved if self._keeps(trace_id(run_id))})

    def _marked(self, now: datetime) -> datetime:
        """The earliest instant of entries whose spans may be missing. Makes the first mark."""
        with suppress(OSError):
            return min(datetime.fromtimestamp(self._mark.stat().st_mtime, UTC), now) - MARGIN
        self._set_mark(now)
        return now - MARGIN

    def _set_mark(self, at: datetime) -> None:
        with suppress(OSError):
            store_folder.make_private_folder(self._mark.parent)
            self._mark.touch(mode=0o600)
            os.utime(self._mark, (at.timestamp(), at.timestamp()))

    async def _send_batch(self) -> bool:
        """Sends a batch of runs; they stay queued unless the receiver took them."""
        batch, is_taken = dict(islice(self._waiting.items(), RUNS_PER_BATCH)), False
        journals = dict[str, tuple[Sequence[Entry], datetime]]()
        for run_id in batch:
            del self._waiting[run_id]
        try:
            for run_id, since in batch.items():
                with suppress(Damaged, NewerVersion):  # its readers learn of it; the newer agent sends it
                    journals[run_id] = await self._store.entries(run_id), since
            is_taken = await in_daemon_thread(partial(self._send_spans, journals), name="traces")
        finally:
            if not is_taken:
                self._add(batch)
        return is_taken

    def _send_spans(self, journals: Mapping[str, tuple[Sequence[Entry], datetime]]) -> bool:
        spans = list[Span]()
        for run_id, (entries, since) in journals.items():
            try:
                spans += spans_since_rest(entries, since=since, content=self._content)
            except Damaged:  # readers of its files learn of it
                continue
            except Exception:
                log.exception("spans of a run cannot be made", extra={"run_id": run_id})
        return all(self._send(spans[i : i + SPANS_PER_REQUEST]) for i in range(0, len(spans), SPANS_PER_REQUEST))
