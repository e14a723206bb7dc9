"""What was left half done, and what falls due: found in the store, not in memory.

On start every entry whose effects are not known to be done is performed again, under the same ids. After the bus was
lost (and on start) what it must know of live runs, and of those that ended lately, is said again: a bus that syncs its
disk less often than every message may have forgotten it, and drops by its id what it still knows.
"""

import asyncio
import logging
from datetime import datetime, timedelta

from agent_service import journal
from agent_service.background import Background
from agent_service.core.announcing import outstanding
from agent_service.core.events import TimerFired
from agent_service.core.state import RunState
from agent_service.errors import Damaged, TryAgain
from agent_service.journal import Run
from agent_service.ports import Archive, Clock, RunStore, Unperformed
from agent_service.publisher import Outbox
from agent_service.turn import Turns

DUE_EVERY_S = 0.5
DUE_AT_ONCE = 200
LEFT_EVERY_S = 2.0
SAID_AT_ONCE = 64
MOST_LEFT = 100_000
FORGETTABLE = timedelta(seconds=60)
"""How far back the bus may have forgotten: far more than a sync interval and a publish with all its retries."""

log = logging.getLogger(__name__)


class Recovery:
    """Resumes runs by what the store says of them."""

    def __init__(
        self, turns: Turns, store: RunStore, archive: Archive, outbox: Outbox, background: Background, *, slots: int
    ) -> None:
        self._turns = turns
        self._store = store
        self._archive = archive
        self._outbox = outbox
        self._background = background
        self._slots = asyncio.Semaphore(slots)

    async def resume_all(self) -> int:
        """Begin to perform everything that the last process left undone; returns how many entries that were."""
        left = await self._store.unperformed(MOST_LEFT)
        for entry in left:
            self._background.start(self._resume(entry))
        return len(left)

    async def say_again(self, forgotten_at: datetime, now: datetime) -> int:
        """Publish again what the bus must know, and may have forgotten at `forgotten_at`; returns of how many runs.

        What was decided since then is said as it is decided: an executor that listens without a consumer would hear it
        twice. Raises TryAgain when the bus is away.
        """
        run_ids = await self._archive.unsettled(forgotten_at - FORGETTABLE)
        for some in (run_ids[i : i + SAID_AT_ONCE] for i in range(0, len(run_ids), SAID_AT_ONCE)):
            await asyncio.gather(*(self._say(run_id, forgotten_at, now) for run_id in some))
        return len(run_ids)

    async def waiting_since(self, now: datetime) -> datetime:
        """Since when the run that has waited longest waits for what it waits for now; `now` if none does."""
        runs = [await self._readable(run_id) for run_id in await self._archive.unsettled(now)]
        states = [run.state for run in runs if run and not run.state.final]
        return min((_waits_since(state) for state in states), default=now)

    async def fire_due(self, now: datetime) -> None:
        """Begin a turn for every run whose timer has come."""
        for run_id in await self._store.due(now, DUE_AT_ONCE):
            self._background.start(self._turns.take(run_id, TimerFired(at=now)))

    async def keep_time(self, clock: Clock) -> None:
        """Fire what falls due, for ever."""
        while True:
            await self.fire_due(clock.now())
            await asyncio.sleep(DUE_EVERY_S)

    async def retry_left(self) -> None:
        """Perform what the bus would not take before."""
        for (run_id, seq), effects in list(self._turns.left.items()):
            await self._turns.resume(run_id, seq, effects)

    async def empty_outbox(self) -> None:
        """Try again what the bus would not take, for ever."""
        while True:
            await asyncio.sleep(LEFT_EVERY_S)
            try:
                await self.retry_left()
            except TryAgain as error:
                log.warning("what was left waits for the store", extra={"why": str(error)})

    async def _resume(self, left: Unperformed) -> None:
        """A few at a time, so that a service with many runs to resume answers meanwhile."""
        async with self._slots:
            try:
                effects = journal.decode_effects(left.effects)
            except ValueError:
                self._store.quarantine(Damaged(left.run_id, f"what entry {left.seq} left to be done"))
            else:
                await self._turns.resume(left.run_id, left.seq, effects)

    async def _say(self, run_id: str, forgotten_at: datetime, now: datetime) -> None:
        run = await self._readable(run_id)
        if run is None or forgotten_at < run.state.updated_at <= now:  # after `now`: the clock was set back meanwhile
            return
        for effect in outstanding(run.state):
            await self._outbox.publish(run_id, effect)

    async def _readable(self, run_id: str) -> Run | None:
        """The run, unless it is left alone."""
        try:
            return await self._store.load(run_id)
        except Damaged:
            return None


def _waits_since(state: RunState) -> datetime:
    return state.pending.requested_at if state.pending else state.updated_at
