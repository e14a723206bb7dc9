"""What callers may ask of the agent, whatever they ask over: wake, look, follow, cancel, signal."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_service.api.feed import Feed
from agent_service.background import Background
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import TryAgain
from agent_service.intake import Intake
from agent_service.journal import Entry
from agent_service.ports import Archive, Callbacks, RunLine, RunStore, Skills, Troubles
from schemas.events import AgenticStart, Constraints, Signal

LOOK_AGAIN_S = 1.0
"""How often a follower looks by itself, for entries that another process wrote."""
ENTRIES_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeOrder:
    """A checked wake."""

    wake_id: str
    goal: str
    context: dict[str, Any]
    constraints: Constraints
    callback: str | None = None


class Runs:
    """The agent's front desk. `accepted` is told of every wake that is durable."""

    def __init__(
        self,
        store: RunStore,
        archive: Archive,
        intake: Intake,
        skills: Skills,
        troubles: Troubles,
        callbacks: Callbacks,
        feed: Feed,
        background: Background,
        *,
        accepted: Callable[[], None],
        max_queued: int,
    ) -> None:
        self._store = store
        self._archive = archive
        self._intake = intake
        self._skills = skills
        self._troubles = troubles
        self._callbacks = callbacks
        self._feed = feed
        self._background = background
        self._accepted = accepted
        self._max_queued = max_queued

    async def wake(self, order: WakeOrder) -> str:
        """The id of a run that is durable: a new one, or the one that the wake id names already.

        Raises LimitRefused, WakeConflict, and TryAgain with nothing stored when too many runs wait.
        """
        known = await self._archive.run_of(order.wake_id) is not None
        if not known and await self._queued() >= self._max_queued:
            raise TryAgain(f"{self._max_queued} runs wait to begin already", delay_s=5.0)
        start = AgenticStart(
            goal=order.goal, context=order.context, constraints=order.constraints, callback=order.callback
        )
        run_id, accepted = await self._intake.wake(order.wake_id, start, known=known)
        self._accepted()
        self._background.start(self._intake.follow(accepted))
        return run_id

    async def callback_flaw(self, order: WakeOrder) -> str:
        """Why its callback would never be called; empty where it may be, and for a wake that was accepted before."""
        if not order.callback or await self._archive.run_of(order.wake_id) is not None:
            return ""
        return await self._callbacks.flaw(order.callback)

    async def executors(self) -> frozenset[str]:
        """The names of those who would take tool requests now."""
        with suppress(TryAgain):  # nobody has told a tool yet
            await self._skills.catalog()
        return self._skills.present()

    async def trouble(self, executor: str, *, run_id: str, step: int) -> str:
        """Why the executor has not begun the step, as it says itself; empty when all is well."""
        return await self._troubles.of(executor, run_id=run_id, step=step)

    async def state(self, run_id: str) -> RunState | None:
        """Where the run stands; None when there is none of that id."""
        run = await self._store.load(run_id)
        return run.state if run else None

    async def page(self, *, status: Status | None, limit: int, before: str | None) -> Sequence[RunLine]:
        """Runs, newest first."""
        return await self._archive.runs(status=status, limit=limit, before=before)

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """The run's journal from after entry `after` on."""
        return await self._archive.entries(run_id, after, limit)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Every entry after `after`, each once and in order, as they come; ends after the one that ends the run."""
        with self._feed.follow(run_id) as news:
            while True:
                news.clear()
                state = await self.state(run_id)
                entries = await self.entries(run_id, after, ENTRIES_AT_ONCE)
                for entry in entries:
                    yield entry
                    after = entry.seq
                if not entries and (state is None or state.final):
                    return
                if not entries:
                    await _either(news, LOOK_AGAIN_S)

    async def cancel(self, run_id: str, reason: str | None) -> str | None:
        """Cancel the run, durably. Returns why there was nothing to cancel, or None when it is cancelled now."""
        transition = await self._intake.cancel(run_id, reason)
        self._background.start(self._intake.follow(transition))
        return transition.ignored

    async def signal(self, signal: Signal) -> str | None:
        """Let the run hear a signal, durably. Returns why it took no notice, or None."""
        transition = await self._intake.signal(signal)
        self._background.start(self._intake.follow(transition))
        return transition.ignored

    async def _queued(self) -> int:
        return (await self._archive.counts()).get(Status.QUEUED, 0)


async def _either(news: asyncio.Event, within_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await news.wait()
