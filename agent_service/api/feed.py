"""Pushes commits to those who follow a run, or all runs, and lets callers wait until a run rests.

An entry reaches its run's channel when it is committed. Only the journal knows positions in all runs, so the newest are
looked up right before followers are woken. Positions that no process reports within a second are passed over: their
followers find them in the journal, as they do those of other processes in the stream of all runs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from agent_service.api.channel import Channel, News, Source, Stretch
from agent_service.api.errors import present
from agent_service.api.requests import Wait
from agent_service.core.waiting import FINAL, Status
from agent_service.history.plain import View
from agent_service.run.journal import Entry
from agent_service.run.lines import RunLine, line_of
from agent_service.run.moments import Elsewhere, Moment
from agent_service.run.ports import Archive, Place, RunStore
from agent_service.views.entries import EntryView, entry_view
from groundwork.service.errors import TryAgain
from groundwork.service.invisible import json_visible

LOOK_EVERY_S = 1.0
LOOKS_PER_SIGN_OF_LIFE = 15
PLACES_AT_ONCE = 500
MOST_UNTOLD = 5000

log = logging.getLogger(__name__)


class Journal(Archive, RunStore, Protocol):
    """The store, as far as it tells of runs."""


class RunEvent(View):
    """An event of all runs: an entry, its position in the journal of all runs, and its run as it stands when the entry
    is read."""

    position: int
    run: RunLine
    entry: EntryView


class Feed:
    def __init__(self, journal: Journal, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._journal = journal
        self._look_every_s = look_every_s
        self._runs: dict[str, Channel] = {}
        self._all: Channel | None = None
        self._untold: dict[tuple[str, int], News | None] = {}
        """Committed, and not yet in the channel of all runs: by run and `seq`. None: it is to be read from there."""
        self._position = 0
        self._overdue = 0
        self._looking: asyncio.TimerHandle | None = None
        self._looks = 0
        self._ended = False

    @property
    def followers(self) -> int:
        return sum(channel.followers for channel in self._channels())

    @property
    def newest(self) -> int:
        return self._journal.newest()

    def tell(self, moment: Moment) -> None:
        if self._all is not None or moment.entry.run_id in self._runs:
            self._push(moment.entry, News(moment, moment.after), known=True)

    def elsewhere(self, one: Elsewhere) -> None:
        if self._all is None and one.run_id not in self._runs:
            return
        news = None
        with suppress(ValueError):  # readers of the journal are told what is wrong with it
            news = News(one.entry.record())
        self._push(one.entry, news, known=False)

    def end(self) -> None:
        self._ended = True
        for channel in self._channels():
            channel.end()

    async def rest(self, run_id: str, wait: Wait) -> None:
        """Returns when the run rests, the agent stops, or the wait is over. Refuses (404) an id of no run."""
        with self.follow_run(run_id) as channel, suppress(TimeoutError):
            async with _while_there(wait):
                await self._rest(run_id, channel)

    async def _rest(self, run_id: str, channel: Channel) -> None:
        while True:
            seen = channel.newest
            if channel.ended or rests(channel.reached or (await present(self._journal, run_id)).state.status):
                return
            while channel.newest == seen and not channel.ended:
                await channel.news()

    @contextmanager
    def follow_run(self, run_id: str) -> Iterator[Channel]:
        """The run's channel. Raises TryAgain."""
        self._keep_looking()
        channel = self._runs.get(run_id)
        if channel is None:
            newest, read = partial(self._journal.version, run_id), partial(self._of_run, run_id)
            channel = self._runs[run_id] = Channel(Source(newest=newest, encode=_entry_frame, read=read))
        try:
            with channel.followed():
                yield self._current(channel)
        finally:
            if not channel.followers:
                self._runs.pop(run_id, None)

    @contextmanager
    def follow_all(self) -> Iterator[Channel]:
        """The channel of all runs. Raises TryAgain."""
        self._keep_looking()
        if self._all is None:
            source = Source(newest=self._journal.newest, encode=_run_frame, read=self._of_all)
            channel = Channel(source, self._gather)
            self._look(channel.newest)
            self._all = channel
        channel = self._all
        try:
            with channel.followed():
                yield self._current(channel)
        finally:
            if not channel.followers:
                self._all = None
                self._untold.clear()

    def _current(self, channel: Channel) -> Channel:
        if self._ended:
            channel.end()
        return channel

    def _push(self, entry: Entry, news: News | None, *, known: bool) -> None:
        channel = self._runs.get(entry.run_id)
        if channel and entry.seq > channel.newest:
            if news is None or entry.seq > channel.newest + 1:
                channel.skip(entry.seq if news is None else entry.seq - 1)
            if news:
                channel.tell(entry.seq, news)
            channel.wake_soon()
        if self._all:
            if len(self._untold) >= MOST_UNTOLD:
                self._untold.clear()
            self._untold[entry.run_id, entry.seq] = news if known else None
            self._all.wake_soon()

    def _channels(self) -> Iterator[Channel]:
        yield from self._runs.values()
        if self._all:
            yield self._all

    def _gather(self) -> None:
        with suppress(TryAgain):  # it is looked again
            self._look(0)

    def _keep_looking(self) -> None:
        if self._looking is None:
            self._position = self._overdue = self._journal.newest()
            self._looking = asyncio.get_running_loop().call_later(self._look_every_s, self._look_again)

    def _look_again(self) -> None:
        self._looking = None
        if not self.followers:
            return
        with suppress(TryAgain):
            self._look(self._overdue)
            self._overdue = self._journal.newest()
        self._looks += 1
        if self._looks % LOOKS_PER_SIGN_OF_LIFE == 0:  # one timer for all: one for each would cost more than to write
            for channel in self._channels():
                channel.wake()
        self._looking = asyncio.get_running_loop().call_later(self._look_every_s, self._look_again)

    def _look(self, overdue: int) -> None:
        """Take up positions as far as they are told, and up to `overdue` as they were stored. Raises TryAgain."""
        while places := self._journal.places(self._position, PLACES_AT_ONCE):
            for place in places:
                if not self._take_up(place, overdue=place.position <= overdue):
                    return
                self._position = place.position

    def _take_up(self, place: Place, *, overdue: bool) -> bool:
        named = place.run_id, place.seq
        if named not in self._untold and not overdue:
            return False
        news = self._untold.pop(named, None)
        if self._all and news:
            self._all.tell(place.position, news)
        elif self._all:
            self._all.skip(place.position)
            self._all.wake_soon()
        channel = self._runs.get(place.run_id)
        if channel and place.seq > channel.newest:
            channel.skip(place.seq)
            channel.wake_soon()
        return True

    async def _of_run(self, run_id: str, after: int, limit: int) -> Stretch:
        entries = await self._journal.entries(run_id, after, limit)
        news = [(entry.seq, News(entry.record())) for entry in entries]
        return Stretch(news[-1][0] if news else after, news)

    async def _of_all(self, after: int, limit: int) -> Stretch:
        places = sorted(self._journal.places(after, limit), key=attrgetter("run_id", "seq"))
        news: dict[int, News] = {}
        for run_id, group in groupby(places, key=attrgetter("run_id")):
            news |= await self._at(run_id, list(group))
        return Stretch(max((place.position for place in places), default=after), sorted(news.items()))

    async def _at(self, run_id: str, places: Sequence[Place]) -> Mapping[int, News]:
        first, last = places[0].seq, places[-1].seq
        try:
            run = await self._journal.load(run_id)
            entries = await self._journal.entries(run_id, first - 1, last - first + 1) if run else ()
            of_seq = {entry.seq: News(entry.record(), run.state if run else None) for entry in entries}
        except ValueError as error:  # Damaged too; the other runs are told
            log.warning("left out of the stream of all runs", extra={"run_id": run_id, "why": str(error)})
            return {}
        return {place.position: of_seq[place.seq] for place in places if place.seq in of_seq}


def rests(status: Status) -> bool:
    return status in FINAL or status is Status.PAUSED


@asynccontextmanager
async def _while_there(wait: Wait) -> AsyncIterator[None]:
    """Raises TimeoutError after so many seconds, or when the caller has hung up."""

    async def listen() -> None:
        await wait.hung_up()
        patience.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(wait.within_s) as patience:
        listening = asyncio.create_task(listen())
        try:
            yield
        finally:
            listening.cancel()


def _entry_frame(number: int, news: News) -> bytes:
    return _frame(number, news, entry_view(news.record))


def _run_frame(number: int, news: News) -> bytes:
    if news.run is None:
        raise ValueError(f"the run of event {number} was not read")
    return _frame(number, news, RunEvent(position=number, run=line_of(news.run), entry=entry_view(news.record)))


def _frame(number: int, news: News, data: View) -> bytes:
    # many readers split lines where only Unicode would, so such characters go as JSON's own escapes
    text = json_visible(data.model_dump_json(by_alias=True))
    return f"id: {number}\nevent: {news.record.entry.kind}\ndata: {text}\n\n".encode()
