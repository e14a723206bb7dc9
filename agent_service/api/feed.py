"""Pushes what is committed to those who follow a run, or all runs. Nothing is asked for in their name.

A moment reaches its run's channel when it is committed. The channel of all runs takes them in the order of the journal:
only that knows their positions, so its newest places are looked up right before followers are woken. Places that nobody
here tells of (another process wrote there, or a turn was given up in the middle of its commit) are passed over after a
second: their followers find them in the journal.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from agent_service.api.channel import Channel, Source
from agent_service.moments import Moment
from agent_service.ports import Place
from groundwork.service.errors import TryAgain

LOOK_EVERY_S = 1.0
LOOKS_PER_SIGN_OF_LIFE = 15
PLACES_AT_ONCE = 500
MOST_UNTOLD = 5000
"""Moments that wait for their position to be looked up; beyond it, the journal has them."""


class Places(Protocol):
    """The part of the port Archive that is looked at in the middle of other work."""

    def newest(self) -> int:
        """The position of the newest entry of all runs."""

    def places(self, after: int, limit: int) -> Sequence[Place]:
        """Where entries stand in the journal of all runs, from after position `after` on, in order."""


class Feed:
    """Channels of runs, and one of all runs, each as long as somebody follows it."""

    def __init__(self, journal: Places, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._journal = journal
        self._look_every_s = look_every_s
        self._runs: dict[str, Channel] = {}
        self._all: Channel | None = None
        self._moments: dict[tuple[str, int], Moment] = {}
        """Committed, and not yet in the channel of all runs: by run and `seq`."""
        self._position = 0
        """Up to here, all places were looked at."""
        self._overdue = 0
        """What was stored by then should have been told."""
        self._looking: asyncio.TimerHandle | None = None
        self._looks = 0

    @property
    def followers(self) -> int:
        """How many there are now."""
        return sum(channel.followers for channel in self._channels())

    def tell(self, moment: Moment) -> None:
        """It is committed."""
        entry = moment.entry
        if channel := self._runs.get(entry.run_id):
            if entry.seq > channel.newest + 1:
                channel.skip(entry.seq - 1)
            if entry.seq > channel.newest:
                channel.tell(entry.seq, moment)
                channel.wake_soon()
        if self._all:
            if len(self._moments) >= MOST_UNTOLD:
                self._moments.clear()
            self._moments[entry.run_id, entry.seq] = moment
            self._all.wake_soon()

    @contextmanager
    def follow_run(self, run_id: str, source: Source) -> Iterator[Channel]:
        """The run's channel, made by `source` for the first that follows. Raises TryAgain."""
        self._keep_looking()
        channel = self._runs.get(run_id) or self._runs.setdefault(run_id, Channel(source, _nothing))
        try:
            with channel.followed():
                yield channel
        finally:
            if not channel.followers:
                self._runs.pop(run_id, None)

    @contextmanager
    def follow_all(self, source: Source) -> Iterator[Channel]:
        """The channel of all runs, made by `source` for the first that follows. Raises TryAgain."""
        self._keep_looking()
        if self._all is None:
            channel = Channel(source, self._gather)
            self._look(channel.newest)
            self._all = channel
        channel = self._all
        try:
            with channel.followed():
                yield channel
        finally:
            if not channel.followers:
                self._all = None
                self._moments.clear()

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
        """Take up places as far as they are told, and as they were stored up to position `overdue`. Raises TryAgain."""
        while places := self._journal.places(self._position, PLACES_AT_ONCE):
            for place in places:
                if not self._take_up(place, overdue=place.position <= overdue):
                    return
                self._position = place.position

    def _take_up(self, place: Place, *, overdue: bool) -> bool:
        """False for a place that is only to be told of."""
        moment = self._moments.pop((place.run_id, place.seq), None)
        if moment is None and not overdue:
            return False
        if self._all and moment:
            self._all.tell(place.position, moment)
        elif self._all:
            self._all.skip(place.position)
            self._all.wake_soon()
        channel = self._runs.get(place.run_id)
        if channel and place.seq > channel.newest:
            channel.skip(place.seq)
            channel.wake_soon()
        return True


def _nothing() -> None:
    """Nothing more is to be told."""
