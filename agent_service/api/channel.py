"""A channel: the newest events of one stream, encoded once for all who follow it.

Event numbers grow: an entry's `seq` for one run, its position in the journal for all runs. A follower is the number it
has seen; where the channel does not reach back to it, pages of the journal serve, so a slow reader delays no other.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from agent_service.core.state import RunState
from agent_service.core.waiting import FINAL, Status
from agent_service.run.journal import Record

KEPT = 1000
KEPT_CHARACTERS = 4_000_000
PAGE = 50
KEPT_PAGES = 4
LONGEST_KEPT_PAGE = 1_000_000
CHUNK_BYTES = 64 * 1024
PAUSE_PER_FOLLOWER_S = 80e-6
"""Between two times that followers are woken. Each costs some 20 µs: all together are given a quarter of the thread."""


@dataclass(frozen=True, slots=True)
class News:
    """An entry, and the run as it stood when the entry was read; None in the stream of one run, which does not show
    it."""

    record: Record
    run: RunState | None = None


@dataclass(slots=True)
class _Told:
    number: int
    news: News | None
    final: bool
    size: int
    encoded: bytes = b""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events to be sent, up to `number`. `final`: after them, the run has ended."""

    number: int
    frames: bytes
    final: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events as they are stored, by number; `number` is how far they were looked for."""

    number: int
    news: Sequence[tuple[int, News]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`newest`: the newest entry's number; raises TryAgain. `read`: those after one; raises TryAgain, Damaged."""

    newest: Callable[[], int]
    encode: Callable[[int, News], bytes]
    read: Callable[[int, int], Awaitable[Stretch]]


class Channel:
    def __init__(self, source: Source, gather: Callable[[], None] = lambda: None) -> None:
        """`gather` is called before followers are woken: it may tell more. Raises TryAgain."""
        self.base = self.newest = self._woken_of = source.newest()
        self.reached: Status | None = None
        """The status after the newest event; None where only the store knows it."""
        self.followers = 0
        self.ended = False
        self._source = source
        self._gather = gather
        self._told: deque[_Told] = deque()
        self._size = 0
        self._given = (-1, -1, Chunk(0, b"", final=False))
        self._pages: OrderedDict[int, tuple[int, list[_Told]]] = OrderedDict()
        self._reading = asyncio.Lock()
        self._news = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at = 0.0

    def tell(self, number: int, news: News) -> None:
        self._told.append(_told(number, news))
        self._size += self._told[-1].size
        self.newest, self.reached = number, news.record.stands.status
        while len(self._told) > KEPT or self._size > KEPT_CHARACTERS:
            oldest = self._told.popleft()
            self._size -= oldest.size
            self.base = oldest.number

    def skip(self, number: int) -> None:
        self._told.clear()
        self._size = 0
        self.base = self.newest = number
        self.reached = None

    def wake_soon(self) -> None:
        if self._waking is None:
            loop = asyncio.get_running_loop()
            pause = PAUSE_PER_FOLLOWER_S * self.followers
            self._waking = loop.call_at(max(loop.time(), self._woken_at + pause), self._wake)

    async def after(self, number: int) -> Chunk:
        """What follows on `number`, or the beginning of it. Raises TryAgain and Damaged."""
        if number < self.base:
            return await self._from_journal(number)
        asked_after, newest, chunk = self._given
        if asked_after != number or newest != self.newest:
            late = takewhile(lambda told: told.number > number, reversed(self._told))
            chunk = self._chunk(number, reversed(list(late)))
            self._given = number, self.newest, chunk
        return chunk

    @contextmanager
    def followed(self) -> Iterator[None]:
        self.followers += 1
        try:
            yield
        finally:
            self.followers -= 1

    async def news(self) -> None:
        if not self.ended:
            await self._news.wait()

    def _wake(self) -> None:
        self._waking = None
        self._gather()
        if self.newest == self._woken_of:
            return
        self._woken_at = asyncio.get_running_loop().time()
        self.wake()

    def end(self) -> None:
        self.ended = True
        self.wake()

    def wake(self) -> None:
        self._woken_of = self.newest
        self._news.set()
        self._news = asyncio.Event()

    async def _from_journal(self, number: int) -> Chunk:
        async with self._reading:
            last, page = await self._page(number)
        await asyncio.sleep(0)  # a reader that catches up lets others have their turn
        chunk = self._chunk(number, (told for told in page if told.number > number))
        return chunk if chunk.frames else Chunk(last, b"", final=False)

    async def _page(self, number: int) -> tuple[int, list[_Told]]:
        first = number // PAGE * PAGE
        kept = self._pages.get(first)
        if kept and kept[0] > number:
            return kept
        stretch = await self._source.read(first, PAGE)
        page = max(number, stretch.number), [_told(at, news) for at, news in stretch.news]
        if sum(told.size for told in page[1]) <= LONGEST_KEPT_PAGE:
            self._pages[first] = page
        while len(self._pages) > KEPT_PAGES:
            self._pages.popitem(last=False)
        return page

    def _chunk(self, number: int, told: Iterable[_Told]) -> Chunk:
        frames: list[bytes] = []
        size, final = 0, False
        for one in told:
            frames.append(self._frame(one))
            size, number, final = size + len(frames[-1]), one.number, one.final
            if size >= CHUNK_BYTES:
                break
        return Chunk(number, b"".join(frames), final)

    def _frame(self, told: _Told) -> bytes:
        if told.news:
            told.encoded, told.news = self._source.encode(told.number, told.news), None
        return told.encoded


def _told(number: int, news: News) -> _Told:
    return _Told(number, news, news.record.stands.status in FINAL, len(news.record.entry.event))
