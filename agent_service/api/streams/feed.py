"""Pushes commits to those who follow a run, or all runs.

A moment reaches its run's channel when it is committed. Only the journal knows positions in all runs, so the newest are
looked up right before followers are woken. Positions that no process reports within a second are passed over: their
followers find them in the journal. Commits of other processes become moments where the run's state before is known.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from agent_service.api.streams.channel import Channel, Source
from agent_service.core.state import RunState
from agent_service.errors import Damaged
from agent_service.run.journal import Entry
from agent_service.run.moments import Elsewhere, Moment, tell
from agent_service.run.ports import Place
from groundwork.service.errors import TryAgain

MOST_RUNS = 4096


class Reached:
    def __init__(self) -> None:
        self._states: OrderedDict[str, RunState] = OrderedDict()

    def note(self, state: RunState) -> None:
        known = self._states.get(state.run_id)
        if known is None or known.version < state.version:
            self._states[state.run_id] = state
            self._states.move_to_end(state.run_id)
        if len(self._states) > MOST_RUNS:
            self._states.popitem(last=False)

    def moment(self, one: Elsewhere) -> Moment | None:
        before = self._states.get(one.run_id)
        if (before.version if before else 0) != one.entry.seq - 1:
            return None
        try:
            moment = tell(before, one.entry)
        except (Damaged, ValueError):  # readers of the journal are told what is wrong with it
            return None
        self.note(moment.after)
        return moment

    def forget(self) -> None:
        self._states.clear()


LOOK_EVERY_S = 1.0
LOOKS_PER_SIGN_OF_LIFE = 15
PLACES_AT_ONCE = 500
MOST_UNTOLD = 5000


class Places(Protocol):
    def newest(self) -> int:
        """The position of the newest entry of all runs."""

    def places(self, after: int, limit: int) -> Sequence[Place]:
        """Where entries stand in the journal of all runs, from after position `after` on, in order."""


class Feed:
    def __init__(self, journal: Places, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._journal = journal
        self._look_every_s = look_every_s
        self._runs: dict[str, Channel] = {}
        self._all: Channel | None = None
        self._moments: dict[tuple[str, int], Moment | None] = {}
        """Committed, and not yet in the channel of all runs: by run and `seq`. None: it is to be read from there."""
        self._reached = Reached()
        self._position = 0
        self._overdue = 0
        self._looking: asyncio.TimerHandle | None = None
        self._looks = 0
        self._ended = False

    @property
    def followers(self) -> int:
        return sum(channel.followers for channel in self._channels())

    def tell(self, moment: Moment) -> None:
        if self._all is None and moment.entry.run_id not in self._runs:
            return
        self._reached.note(moment.after)
        self._push(moment.entry, moment)

    def elsewhere(self, one: Elsewhere) -> None:
        if self._follows(one.run_id):
            self._push(one.entry, self._reached.moment(one))

    def reached(self, state: RunState) -> None:
        if self._follows(state.run_id):
            self._reached.note(state)

    def end(self) -> None:
        self._ended = True
        for channel in self._channels():
            channel.end()

    @contextmanager
    def follow_run(self, run_id: str, source: Source) -> Iterator[Channel]:
        """The run's channel, made by `source` for the first that follows. Raises TryAgain."""
        self._keep_looking()
        channel = self._runs.get(run_id) or self._runs.setdefault(run_id, Channel(source, _nothing))
        try:
            with channel.followed():
                yield self._current(channel)
        finally:
            if not channel.followers:
                self._runs.pop(run_id, None)
                self._unfollowed()

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
                yield self._current(channel)
        finally:
            if not channel.followers:
                self._all = None
                self._moments.clear()
                self._unfollowed()

    def _current(self, channel: Channel) -> Channel:
        if self._ended:
            channel.end()
        return channel

    def _unfollowed(self) -> None:
        if self._all is None and not self._runs:
            self._reached.forget()

    def _follows(self, run_id: str) -> bool:
        return self._all is not None or run_id in self._runs

    def _push(self, entry: Entry, moment: Moment | None) -> None:
        channel = self._runs.get(entry.run_id)
        if channel and entry.seq > channel.newest:
            if moment is None or entry.seq > channel.newest + 1:
                channel.skip(entry.seq if moment is None else entry.seq - 1)
            if moment:
                channel.tell(entry.seq, moment)
            channel.wake_soon()
        if self._all:
            if len(self._moments) >= MOST_UNTOLD:
                self._moments.clear()
            self._moments[entry.run_id, entry.seq] = moment
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
        if named not in self._moments and not overdue:
            return False
        moment = self._moments.pop(named, None)
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
    """Tells of nothing more."""
