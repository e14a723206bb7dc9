"""Sends the traces of runs to a receiver, from their journals.

The journal is the buffer: after an outage or a crash, runs that moved since `Mark` are told again. The spans are the
same to the byte, so a backend drops those it has. Agents that share a store send what their own entries add; another
sends what a dead one may not have sent.
"""

import asyncio
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

from agent_service.errors import Damaged
from agent_service.run.moments import Journals, Moment, retell
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.trace import spans
from agent_service.trust.identity import trace_id
from groundwork.service.machine import utc_now
from groundwork.telemetry.sending import beside
from groundwork.telemetry.settings import Keeps
from groundwork.telemetry.span import Span

MOST_WAITING = 16_384
FILE = ".traced"
MARGIN = timedelta(seconds=60)
"""Runs are told again from so much earlier: telling twice is cheap."""
LONGEST_BACK = timedelta(days=1)
AT_ONCE = 256
"""Spans of one request: with all that they may hold, less than receivers take at once."""
RUNS_AT_ONCE = 16
REMEMBERED_ENDS = 1024
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Between two tries while the receiver is away."""

log = logging.getLogger(__name__)

Send = Callable[[Sequence[Span]], bool]
"""Whether the receiver took the spans; blocks until that is known."""


Committed = Callable[[str, str], Container[int]]


class Archive(Journals, Protocol):
    async def unsettled(self, since: datetime) -> Sequence[str]:
        """Runs that have not ended, and those with an entry at or after `since`."""


class Mark(Protocol):
    def note(self) -> None:
        """All that was taken is sent."""

    def noted(self) -> datetime:
        """From when on runs have to be told again."""


class FileMark:
    """A mark as the time of an empty file beside the runs' folders. `told_until`: None for never."""

    def __init__(self, folder: Path, told_until: Callable[[], datetime | None]) -> None:
        self._file = folder / FILE
        self._told_until = told_until

    def note(self) -> None:
        if at := self._told_until():
            with suppress(OSError):
                self._file.touch()
                os.utime(self._file, (at.timestamp(), at.timestamp()))

    def noted(self) -> datetime:
        with suppress(OSError):
            if not self._file.exists():
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.touch()
            noted = datetime.fromtimestamp(self._file.stat().st_mtime, UTC) - MARGIN
            return max(noted, utc_now() - LONGEST_BACK)
        return utc_now()


class Traces:
    def __init__(
        self,
        archive: Archive,
        send: Send,
        mark: Mark,
        *,
        keeps: Keeps,
        content: Content | None = None,
        member: str = "",
        committed: Committed | None = None,
    ) -> None:
        """`committed` and `member`: where others send too, which entries are this one's."""
        self._member = member
        self._committed = committed
        self._archive = archive
        self._send = send
        self._mark = mark
        self._keeps = keeps
        self._content = content
        self._told: dict[str, int] = {}
        self._ended: OrderedDict[str, int] = OrderedDict()
        """The last sent entry of live runs, and of those that ended last."""
        self._waiting: deque[Span] = deque()
        self._away = False
        self._missed = True
        self._something = asyncio.Event()
        self._something.set()

    def take(self, moments: Sequence[Moment]) -> None:
        """`moments` begin with the run's first. Raises nothing: a trace's error must not stop pages."""
        self._something.set()
        if self._away or len(self._waiting) > MOST_WAITING:
            self._missed = True
            return
        try:
            self._waiting.extend(self._new(moments))
        except Exception:
            log.exception("a trace cannot be told", extra={"run_id": moments[-1].after.run_id})

    async def tell(self, run_ids: Iterable[str], member: str = "") -> None:
        """With `member`, the newest entries of that one."""
        for run_id in run_ids:
            with suppress(Damaged, ValueError):  # whoever writes its pages tells of it
                moments = tuple(retell(await self._archive.entries(run_id)))
                if moments and member:
                    self._waiting.extend(self._left_by(member, moments))
                elif moments:
                    self.take(moments)
        self._something.set()

    def _left_by(self, member: str, moments: Sequence[Moment]) -> Iterable[Span]:
        run_id, newest = moments[-1].after.run_id, moments[-1].entry.at
        if self._committed is None or not self._keeps(trace_id(run_id)):
            return ()
        late = next(moment.entry.seq for moment in moments if moment.entry.at >= newest - MARGIN)
        return spans(moments, after=late - 1, of=self._committed(run_id, member), content=self._content)

    def take_leaves(self, leaves: Iterable[Span]) -> None:
        if not self._away and len(self._waiting) <= MOST_WAITING:
            self._waiting.extend(span for span in leaves if self._keeps(span.trace_id))
            self._something.set()

    async def run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._something.wait()
            if await self._tried():
                pause_s = FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def _tried(self) -> bool:
        try:
            return await self._send_all()
        except Exception:
            log.exception("traces are not sent, tried again")
            self._missed = True
            return False

    async def finish(self, within_s: float) -> None:
        """Waits `within_s` seconds at most: the rest is told after the next start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._tried()

    async def _send_all(self) -> bool:
        while self._waiting or self._missed:
            if not (await self._send_waiting() and await self._catch_up()):
                return False
        self._something.clear()
        self._mark.note()
        return True

    async def _send_waiting(self) -> bool:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            if not await self._sent(batch):
                return False
        return True

    async def _catch_up(self) -> bool:
        if not self._missed:
            return True
        self._missed = False
        since = self._mark.noted()
        run_ids = await self._archive.unsettled(since)
        for some in (run_ids[i : i + RUNS_AT_ONCE] for i in range(0, len(run_ids), RUNS_AT_ONCE)):
            told = [span for run_id in some for span in await self._again(run_id, since)]
            for batch in (told[i : i + AT_ONCE] for i in range(0, len(told), AT_ONCE)):
                if not await self._sent(batch):
                    return False
            if not await self._send_waiting():
                return False
        return True

    async def _again(self, run_id: str, since: datetime) -> Iterable[Span]:
        with suppress(Damaged, ValueError):  # whoever writes its pages tells of it
            entries = await self._archive.entries(run_id)
            return self._new(tuple(retell(entries))) if entries[-1].at >= since else ()
        return ()

    def _new(self, moments: Sequence[Moment]) -> list[Span]:
        run = moments[-1].after
        if not self._keeps(trace_id(run.run_id)):
            return []
        ours = self._committed(run.run_id, self._member) if self._committed else None
        told = self._told.pop(run.run_id, 0) or self._ended.pop(run.run_id, 0)
        new = list(spans(moments, after=told, of=ours, content=self._content))
        (self._ended if run.final else self._told)[run.run_id] = run.version
        if len(self._ended) > REMEMBERED_ENDS:
            self._ended.popitem(last=False)
        return new

    async def _sent(self, batch: Sequence[Span]) -> bool:
        try:
            taken = not batch or await beside(partial(self._send, batch), what="traces")
        except asyncio.CancelledError:
            self._missed = True  # nobody knows
            raise
        self._away = not taken
        if not taken:
            self._missed = True
            self._waiting.clear()
            self._told.clear()
            self._ended.clear()
        return taken
