"""Feeds of new entries, of one run or of all runs; and waiting until a run rests.

Events are read from the journal and encoded once for all followers. Their numbers grow: an entry's `seq` in a run, its
position in the journal of all runs. A follower is the number it has seen, so a slow one delays no other. Commits wake
followers; the journal is also polled each second, for entries that no process announced.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from operator import attrgetter

from agent_service.api.errors import present
from agent_service.api.requests import LongPoll
from agent_service.core.state import RunState
from agent_service.core.waiting import FINAL, Status
from agent_service.errors import NewerVersion
from agent_service.history.text import View
from agent_service.run.journal import Commit, JournalRecord
from agent_service.run.ports import JournalPosition
from agent_service.store.lines import RunLine, line_of
from agent_service.store.messages import RemoteCommit
from agent_service.store.runs import RunStore
from agent_service.views.journal import EntryView, entry_view
from groundwork.service.errors import TryAgain
from groundwork.service.invisible import json_visible
from schemas.values import dataclass

POLL_S = 1.0
POLLS_PER_KEEPALIVE = 15
READ_AT_ONCE = 20
CHUNK_BYTES = 64 * 1024
KEPT_CHUNKS = 64
PAUSE_PER_FOLLOWER_S = 80e-6
"""Pause between wake-ups, per follower. A wake-up costs 20 µs per follower, so they take a quarter of the thread."""

log = logging.getLogger(__name__)


class RunEvent(View):
    """An entry, its position in the journal of all runs, and its run at the time of reading."""

    position: int
    run: RunLine
    entry: EntryView


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events up to `number`. `final`: the run has ended with them."""

    number: int
    frames: bytes = b""
    final: bool = False


class Channel:
    """Events of one feed, with its followers.

    `newest` returns the number of the newest event, or raises TryAgain; `read` returns a chunk after a number, or
    raises TryAgain or Damaged. `ending` is set once the agent stops.
    """

    def __init__(
        self, newest: Callable[[], int], read: Callable[[int], Awaitable[Chunk]], ending: asyncio.Event
    ) -> None:
        self.newest = newest()
        self.followers = 0
        self._ending = ending
        self._newest = newest
        self._read = read
        self._chunks: OrderedDict[int, Chunk] = OrderedDict()
        """Chunks by the number before them; they never change."""
        self._reading = asyncio.Lock()
        self._news = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at = 0.0

    @property
    def ended(self) -> bool:
        return self._ending.is_set()

    async def after(self, number: int) -> Chunk:
        async with self._reading:
            if chunk := self._chunks.get(number):
                return chunk
            chunk = await self._read(number)
            if chunk.number > number:
                self._chunks[number] = chunk
            if len(self._chunks) > KEPT_CHUNKS:
                self._chunks.popitem(last=False)
        await asyncio.sleep(0)  # a reader that catches up yields to the others
        return chunk

    @property
    def news(self) -> asyncio.Event:
        """Set at the next wake-up, or once the agent stops."""
        return self._ending if self.ended else self._news

    def wake_soon(self) -> None:
        if self._waking is None:
            loop = asyncio.get_running_loop()
            pause = PAUSE_PER_FOLLOWER_S * self.followers
            self._waking = loop.call_at(max(loop.time(), self._woken_at + pause), self.wake)

    def poll(self) -> None:
        """Wakes followers if there are new events, or if the journal cannot be read, which they then report."""
        with suppress(TryAgain):
            if self._newest() == self.newest:
                return
        self.wake()

    def wake(self) -> None:
        """Wakes followers also if no event is newer: an entry can be seen in the journal before its commit returns and
        `load` shows it."""
        self._waking, self._woken_at = None, asyncio.get_running_loop().time()
        with suppress(TryAgain):
            self.newest = self._newest()
        self._news.set()
        self._news = asyncio.Event()


class Feed:
    def __init__(self, journal: RunStore, *, poll_s: float = POLL_S) -> None:
        self._journal = journal
        self._poll_s = poll_s
        self._channels: dict[str, Channel] = {}
        """Channels by run; the empty name is that of all runs."""
        self._polling: asyncio.TimerHandle | None = None
        self._polls = 0
        self._ending = asyncio.Event()

    @property
    def followers(self) -> int:
        return sum(channel.followers for channel in self._channels.values())

    @property
    def newest(self) -> int:
        return self._journal.newest()

    def announce(self, commit: Commit | RemoteCommit) -> None:
        for name in (commit.run_id, "") if self._channels else ():
            if channel := self._channels.get(name):
                channel.wake_soon()

    def end(self) -> None:
        self._ending.set()
        for channel in self._channels.values():
            channel.wake()

    async def rest(self, run_id: str, wait: LongPoll) -> None:
        """Returns once the run rests, the agent stops, or the wait ends. Refuses an unknown id (404)."""
        with self.follow(run_id) as channel:
            resting, hanging_up = map(asyncio.ensure_future, (self._rest(run_id, channel), wait.hung_up()))
            try:
                await asyncio.wait((resting, hanging_up), timeout=wait.within_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                hanging_up.cancel()
                is_over = not resting.cancel()
            if is_over:
                await resting

    async def _rest(self, run_id: str, channel: Channel) -> None:
        while not channel.ended:
            news = channel.news
            if rests((await present(self._journal, run_id)).state.status):
                return
            await news.wait()

    @contextmanager
    def follow(self, run_id: str = "") -> Iterator[Channel]:
        """Registers a follower of one run, or of all runs. Raises TryAgain."""
        if (channel := self._channels.get(run_id)) is None:
            newest = partial(self._journal.version, run_id) if run_id else self._journal.newest
            read = partial(self._read_run, run_id) if run_id else self._read_all
            channel = self._channels[run_id] = Channel(newest, read, self._ending)
        if self._polling is None:
            self._schedule_poll()
        channel.followers += 1
        try:
            yield channel
        finally:
            channel.followers -= 1
            if not channel.followers:
                self._channels.pop(run_id, None)

    def _schedule_poll(self) -> None:
        self._polling = asyncio.get_running_loop().call_later(self._poll_s, self._poll_all)

    def _poll_all(self) -> None:
        self._polling = None
        if not self._channels:
            return
        self._polls += 1
        for channel in self._channels.values():
            channel.poll()
            if self._polls % POLLS_PER_KEEPALIVE == 0:  # one timer for all channels
                channel.wake()
        self._schedule_poll()

    async def _read_run(self, run_id: str, after: int) -> Chunk:
        entries = await self._journal.entries(run_id, after, READ_AT_ONCE)
        return _chunk(after, ((entry.seq, entry.record(), None) for entry in entries))

    async def _read_all(self, after: int) -> Chunk:
        places = await self._journal.places(after, READ_AT_ONCE)
        found: dict[int, tuple[JournalRecord, RunState]] = {}
        readable = [at for at in places if at.seq]
        for run_id, group in groupby(sorted(readable, key=attrgetter("run_id", "seq")), key=attrgetter("run_id")):
            found |= await self._events_at(run_id, tuple(group))
        chunk = _chunk(after, ((at.position, *found[at.position]) for at in places if at.position in found))
        return chunk if chunk.frames or not places else Chunk(places[-1].position)

    async def _events_at(
        self, run_id: str, places: Sequence[JournalPosition]
    ) -> dict[int, tuple[JournalRecord, RunState]]:
        first, last = places[0].seq, places[-1].seq
        try:
            run = await self._journal.load(run_id, last)
            entries = await self._journal.entries(run_id, first - 1, last - first + 1) if run else ()
            of_seq = {entry.seq: entry.record() for entry in entries}
        except (ValueError, NewerVersion) as error:  # Damaged too; events of the other runs follow
            log.warning("left out of the stream of all runs", extra={"run_id": run_id, "why": str(error)})
            return {}
        return {at.position: (of_seq[at.seq], run.state) for at in places if run and at.seq in of_seq}


def rests(status: Status) -> bool:
    return status in FINAL or status is Status.PAUSED


def _chunk(after: int, news: Iterable[tuple[int, JournalRecord, RunState | None]]) -> Chunk:
    frames: list[bytes] = []
    number, final, size = after, False, 0
    for number, record, run in news:
        frames.append(_frame(number, record, run))
        final, size = record.stands.status in FINAL, size + len(frames[-1])
        if size >= CHUNK_BYTES:
            break
    return Chunk(number, b"".join(frames), final)


def _frame(number: int, record: JournalRecord, run: RunState | None) -> bytes:
    entry = entry_view(record)
    data = RunEvent(position=number, run=line_of(run), entry=entry) if run else entry
    # some readers also split lines at Unicode separators, so these are escaped in the JSON
    text = json_visible(data.model_dump_json(by_alias=True))
    return f"id: {number}\nevent: {record.entry.kind}\ndata: {text}\n\n".encode()
