"""Event streams (server-sent events) of new entries, of one run or of all runs; and waiting until a run rests.

`Last-Event-ID` resumes after that event; a reader that has seen the end of its run gets 204, so that a browser does not
reconnect (HTML standard, server-sent events). A reader that is too slow is disconnected (`groundwork.http`).

Events are read from the journal and encoded once for all followers. Their numbers grow: an entry's `seq` in a run, its
position in the journal of all runs. A follower is the number it has seen, so a slow one delays no other. Commits wake
followers; the journal is also polled each second, for entries that no process announced.
"""

import asyncio
import logging
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from agent_service.api.errors import ApiError, Code, unfit
from agent_service.api.requests import LongPoll
from agent_service.api.runs import present
from agent_service.core.state import RunState
from agent_service.core.waiting import FINAL, Status
from agent_service.errors import Damaged, NewerVersion
from agent_service.history.text import View
from agent_service.run.journal import Commit, JournalRecord
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

MOST_STREAMS = 700
MOST_STREAMS_PER_CALLER = 600
RETRY_AFTER_S = 5.0
KEEPALIVE = b": still here\n\n"
LAST_EVENT_ID = "Last-Event-ID"

_NUMBER = re.compile(r"[0-9]{1,15}")

log = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


class StreamSlots:
    def __init__(self) -> None:
        self._open: Counter[str | None] = Counter()

    async def take(self, request: Request) -> AsyncIterator[None]:
        """Dependency that holds a slot while the response lasts. Refuses with 429."""
        token = request.state.token
        if self._open.total() >= MOST_STREAMS or self._open[token] >= MOST_STREAMS_PER_CALLER:
            text = f"{self._open[token]} of {self._open.total()} event streams are open for this token"
            message = f"{text}: close one, or come back later"
            raise ApiError(Code.TOO_MANY_STREAMS, message, retry_after_s=RETRY_AFTER_S)
        self._open[token] += 1
        try:
            yield
        finally:
            self._open[token] -= 1


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
    raises TryAgain or Damaged.
    """

    def __init__(self, newest: Callable[[], int], read: Callable[[int], Awaitable[Chunk]]) -> None:
        self.newest = newest()
        self.followers = 0
        self._newest = newest
        self._read = read
        self._chunks: OrderedDict[int, Chunk] = OrderedDict()
        """Chunks by the number before them; they never change."""
        self._reading = asyncio.Lock()
        self.news = asyncio.Event()
        """Set at the next wake-up."""
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at = 0.0

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
        self.news.set()
        self.news = asyncio.Event()


class Feed:
    def __init__(self, journal: RunStore, *observers: list[Callable[..., object]], poll_s: float = POLL_S) -> None:
        """`observers`: those of commits. The feed is among them, and polls the journal, while it has followers."""
        self._journal = journal
        self._observers = observers
        self._poll_s = poll_s
        self._channels: dict[str, Channel] = {}
        """Channels by run; the empty name is that of all runs."""
        self._polling: asyncio.TimerHandle
        self._polls = 0
        self._ended = False

    def announce(self, commit: Commit | RemoteCommit) -> None:
        for name in (commit.run_id, ""):
            if channel := self._channels.get(name):
                channel.wake_soon()

    def end(self) -> None:
        self._ended = True
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
        while not self._ended:
            news = channel.news
            status = (await present(self._journal, run_id)).state.status
            if status in FINAL or status is Status.PAUSED:
                return
            await news.wait()

    async def follow_run(self, run_id: str, last_event_id: str | None = None) -> Response:
        """One event for each entry, until the run ends.

        `id` is the entry's number, `event` its kind, `data` the entry as in `/entries`. `Last-Event-ID` resumes after
        that entry. A reader that has already seen the end gets 204.
        """
        seen, run = _number_of(last_event_id) or 0, (await present(self._journal, run_id)).state
        if seen > run.version:
            raise unfit(LAST_EVENT_ID, f"the run has only {run.version} entries")
        if run.final and seen == run.version:
            return Response(status_code=204)
        return self._stream(run_id, seen)

    async def follow_all(self, last_event_id: str | None = None) -> EventStream:
        """One event for each new entry, without end.

        `id` is the entry's position in the journal of all runs, `event` its kind; `data` has that position, the run as
        in the list of runs, and the entry as in its `/entries`. `Last-Event-ID` resumes after that position; without
        it, the stream begins now.
        """
        seen, newest = _number_of(last_event_id), self._journal.newest()
        if (seen or 0) > newest:
            raise unfit(LAST_EVENT_ID, f"the journal of all runs ends at {newest}")
        return self._stream("", newest if seen is None else seen)

    def _stream(self, run_id: str, after: int) -> EventStream:
        return EventStream(self._frames(run_id, after), headers={"X-Accel-Buffering": "no"})

    async def _frames(self, run_id: str, after: int) -> AsyncIterator[bytes]:
        try:
            with self.follow(run_id) as channel:
                while True:
                    news = channel.news  # before the read, which may miss what comes during it
                    chunk = await channel.after(after)
                    if chunk.frames:
                        yield chunk.frames
                    if run_id and chunk.final and chunk.number >= channel.newest:
                        return
                    if chunk.number in (after, channel.newest):
                        if self._ended:
                            return
                        await news.wait()
                        if channel.newest == chunk.number:
                            yield KEEPALIVE
                    after = chunk.number
        except (TryAgain, Damaged) as error:
            log.warning("an event stream is cut off", extra={"after": after, "why": str(error)})

    @contextmanager
    def follow(self, run_id: str = "") -> Iterator[Channel]:
        """Registers a follower of one run, or of all runs. Raises TryAgain."""
        if (channel := self._channels.get(run_id)) is None:
            newest = partial(self._newest_of, run_id) if run_id else self._journal.newest
            read = partial(self._read_run, run_id) if run_id else self._read_all
            channel = Channel(newest, read)
            if not self._channels:
                for observers in self._observers:
                    observers.append(self.announce)
                self._schedule_poll()
            self._channels[run_id] = channel
        channel.followers += 1
        try:
            yield channel
        finally:
            channel.followers -= 1
            if not channel.followers:
                del self._channels[run_id]
            if not self._channels:
                for observers in self._observers:
                    observers.remove(self.announce)
                self._polling.cancel()

    def _newest_of(self, run_id: str) -> int:
        return self._journal.head(run_id)[0]

    def _schedule_poll(self) -> None:
        self._polling = asyncio.get_running_loop().call_later(self._poll_s, self._poll_all)

    def _poll_all(self) -> None:
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
        runs: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for at in places:
            if at.seq:
                runs[at.run_id][at.seq] = at.position
        found = [event for run_id, positions in runs.items() for event in await self._events_of(run_id, positions)]
        chunk = _chunk(after, sorted(found, key=itemgetter(0)))
        return chunk if chunk.frames or not places else Chunk(places[-1].position)

    async def _events_of(
        self, run_id: str, positions: Mapping[int, int]
    ) -> Sequence[tuple[int, JournalRecord, RunState]]:
        """`positions`: by the number of the entry. Loads the run once, because its state may be large."""
        first, last = min(positions), max(positions)
        events: list[tuple[int, JournalRecord, RunState]] = []
        with _left_out(run_id):
            if run := await self._journal.load(run_id, last):
                for entry in await self._journal.entries(run_id, first - 1, last - first + 1):
                    with _left_out(run_id):
                        if position := positions.get(entry.seq):
                            events.append((position, entry.record(), run.state))
        return events


@contextmanager
def _left_out(run_id: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, NewerVersion) as error:  # Damaged too; other events follow
        log.warning("left out of the stream of all runs", extra={"run_id": run_id, "why": str(error)})


def _number_of(last_event_id: str | None) -> int | None:
    """Number of the last event seen, or None. Refuses an illegal id (422)."""
    if not last_event_id:
        return None
    if not _NUMBER.fullmatch(last_event_id):
        raise unfit(LAST_EVENT_ID, "must be the id of an event of this stream")
    return int(last_event_id)


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
