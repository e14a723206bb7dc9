"""Kill switch for all agents of a store, and draining of this process. Checked before every turn, model call and tool
request. Work in flight continues: its result is recorded, and what follows waits in the outbox.

    stop ─▶ durable ─▶ the kill switch ─▶ shown on the bus         go_on ─▶ durable ─▶ every run is told ─▶ switch opens

A stop survives restarts. The store decides; a write to the bus may stop everything, but not resume it. After a crash on
the way all stays stopped, and any process of the store continues.

Draining stops this process alone, then ends it. A model call in flight is paid for, so its reply is committed.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from agent_service.background import Background
from agent_service.core.events import StoodStill
from agent_service.errors import Damaged, Leaving, NewerVersion, Stopped
from agent_service.run.ports import Clock
from agent_service.store.runs import RunStore, progress_of
from groundwork.service.errors import TryAgain
from schemas.status import Halt

LOOK_AGAIN_S = 5.0
ELSEWHERE_AFTER_S = 0.2
"""Delay after which another agent of the store may take over."""


@dataclass(slots=True)
class KillSwitch:
    """`stopped_by`: the stop, with its caller and time, which is stored first; empty if nothing is stopped. `leaving`:
    reason of the drain."""

    stopped_by: str = ""
    leaving: str = ""

    @property
    def blocked_by(self) -> str:
        """Reason why nothing begins here; empty if work may begin."""
        return self.stopped_by or self.leaving

    def check(self) -> None:
        """Raises Stopped."""
        if self.stopped_by:
            raise Stopped(self.stopped_by, LOOK_AGAIN_S)
        if self.leaving:
            raise Leaving(self.leaving, ELSEWHERE_AFTER_S)


TOLD_AT_ONCE = 64
ON_THE_BUS = "written on the bus"
SETTLED_WITHIN = timedelta(seconds=10)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HaltControl:
    """`show` and `shown` write and read the stop on the bus, for its other services; both raise TryAgain. `tell` gets
    each run and what it missed; it raises Damaged or TryAgain. `going_on` is called on every resume.
    `halt`: the newest; all is stopped until it is over.
    """

    kill_switch: KillSwitch
    store: RunStore
    show: Callable[[Halt], Awaitable[None]]
    shown: Callable[[], Awaitable[Halt | None]]
    tell: Callable[[str, StoodStill], Awaitable[object]]
    clock: Clock
    going_on: Callable[[], object]
    halt: Halt | None = field(init=False, default=None)
    _deciding: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def recall(self) -> None:
        """Before runs are resumed: restores the last stop, or one written on the bus since. Raises TryAgain."""
        if newest := await self.store.newest_halt():
            self.adopt(newest)
        with suppress(TryAgain):
            await self.look()
        await self._settle()

    async def stop(self, *, by: str, reason: str) -> Halt:
        """Durable on return; an existing stop stays. Raises TryAgain; then nothing is stopped."""
        async with self._deciding:
            known = self.halt
            if known and not known.over and known.until is None:
                return known
            halt = await self._stop(since=self.clock.now(), by=by, reason=reason)
        await self._show(halt)
        return halt

    async def go_on(self, *, by: str) -> Halt | None:
        """None if nothing is stopped. Raises TryAgain; then all is still stopped."""
        async with self._deciding:
            known = self.halt
            if known is None or known.over:
                return None
            if known.until is None:
                await self._take(known.model_copy(update={"until": self.clock.now(), "until_by": by}))
            await self._settle()
        return self.halt

    def adopt(self, halt: Halt) -> None:
        if self.halt and progress_of(self.halt) >= progress_of(halt):
            return
        was_stopped, why = self.kill_switch.stopped_by, "" if halt.over else str(halt)
        self.halt, self.kill_switch.stopped_by = halt, why
        if why and not was_stopped:
            log.warning("stopped", extra={"why": why, "now": "`agentic go-on` lets everything go on"})
        elif was_stopped and not why:
            log.warning("everything goes on", extra={"by": halt.until_by})
            self.going_on()

    async def keep_shown(self, changes: AsyncIterator[None]) -> None:
        async for _ in changes:
            with suppress(TryAgain):
                await self.look()

    async def look(self) -> None:
        """Adopts a stop of the bus, corrects what it shows, and ends a resume that was left. Raises TryAgain."""
        async with self._deciding:
            shown = await self.shown()
            is_news = shown and not shown.over and shown.number > (self.halt.number if self.halt else 0)
            if shown and is_news and not self.kill_switch.stopped_by:  # only our own store ends a stop
                since = min(shown.since, self.clock.now())
                await self._stop(since=since, by=f"{shown.by} ({ON_THE_BUS})", reason=shown.reason)
            halt = self.halt
            if halt and shown != halt:
                await self.show(halt)
            if halt and halt.until and self.clock.now() > halt.until + SETTLED_WITHIN:
                await self._settle()

    async def _stop(self, *, since: datetime, by: str, reason: str) -> Halt:
        known = self.halt
        since = known.since if known and not known.over else since
        halt = Halt(number=known.number + 1 if known else 1, since=since, by=by, reason=reason)
        await self._take(halt)
        return halt

    async def _settle(self) -> None:
        halt = self.halt
        if halt is None or halt.until is None or halt.over:
            return
        event = StoodStill(at=halt.until, since=halt.since, by=halt.by, reason=halt.reason)
        run_ids = await self.store.changed_since(halt.until, or_open=True)
        for some in (run_ids[i : i + TOLD_AT_ONCE] for i in range(0, len(run_ids), TOLD_AT_ONCE)):
            await asyncio.gather(*(self._tell(run_id, event) for run_id in some))
        over = halt.model_copy(update={"over": True})
        await self._take(over)
        await self._show(over)

    async def _tell(self, run_id: str, event: StoodStill) -> None:
        with suppress(Damaged, NewerVersion):  # that run is left alone
            await self.tell(run_id, event)

    async def _take(self, halt: Halt) -> None:
        await self.store.keep_halt(halt)
        self.adopt(halt)

    async def _show(self, halt: Halt) -> None:
        with suppress(TryAgain):  # `keep_shown` does it
            await self.show(halt)


WHY = "this agent is being drained, and ends: ask another one, or this one once it was started again"
LOOK_AGAIN_AT_CALLS_S = 0.1
_end: Callable[[], None] = partial(signal.raise_signal, signal.SIGTERM)


@dataclass(slots=True, kw_only=True)
class Draining:
    """`leave` stops listening to the bus within some seconds; `thinking` counts model calls in flight."""

    kill_switch: KillSwitch
    background: Background
    leave: Callable[[float], Awaitable[None]]
    thinking: Callable[[], int]
    end: Callable[[], None] = field(default=_end)
    within_s: float = 0.0

    @property
    def begun(self) -> bool:
        return bool(self.kill_switch.leaving)

    def begin(self, within_s: float, *, by: str) -> None:
        """Gives up what has not ended `within_s`, as a stop does. A second call changes nothing."""
        if self.begun:
            return
        self.kill_switch.leaving, self.within_s = WHY, within_s
        log.warning("draining", extra={"by": by, "within_s": within_s, "model_calls": self.thinking()})
        self.background.start(self._drain)

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self.within_s):
                await self.leave(self.within_s)
                while self.thinking():  # noqa: ASYNC110 - each ends by a commit of its own
                    await asyncio.sleep(LOOK_AGAIN_AT_CALLS_S)
        except TimeoutError:
            log.warning("given up", extra={"model_calls": self.thinking(), "after_s": self.within_s})
        self.end()
