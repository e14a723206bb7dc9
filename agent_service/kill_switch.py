"""The brake: whether everything stands still, or this process alone. Asked before every turn that begins, model call
and tool request.

What is under way is not broken off: its result is recorded, and what would follow from it is left in the outbox.

Stopping everything by a person's word, and letting it go on: the switch for when nothing must happen any more.

    stop ─▶ durable ─▶ the brake ─▶ shown on the bus         go_on ─▶ durable ─▶ every run is told ─▶ the brake

Rules: what is stopped is stopped after every restart, until somebody lets it go on. The store's word counts; what the
bus shows is put right by it, and can only stop: so that a person can stop everything where no agent runs, and nobody
can let it go on by writing to the bus. A crash on the way leaves everything stopped, and `settle` goes on from there.
Of several processes of one store each hears what another has made durable, and goes by it; who lets everything go on
tells the runs of all, and where that one dies on the way another does.

Draining this process: it takes nothing new, ends what it has in hand, and then itself, as a signal would end it.

    begin ─▶ no message, no wake, no model call or tool request begins here ─▶ what is in hand ends ─▶ the process ends

A model call that is under way is paid for, so its reply is waited for and committed. What would follow from it is left
in the store: to another agent that shares it, which takes it over at once, or to the next start.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from agent_service.background import Background
from agent_service.core.events import StoodStill
from agent_service.errors import Damaged, Stopped
from agent_service.run.ports import Archive, Board, Clock, Halts
from groundwork.service.errors import TryAgain
from schemas.status import Halt

LOOK_AGAIN_S = 5.0
"""After which a start of the bus is looked at again."""


class Brake:
    """Free until `halt` is set to one that is not over. Whoever sets it makes it durable first (see halting).

    `leaving`: why nothing begins in this process alone, which is about to end (see draining).
    """

    def __init__(self) -> None:
        self.halt: Halt | None = None
        self.leaving = ""

    @property
    def why(self) -> str:
        """By whom and since when everything stands still; empty while all goes on."""
        return str(self.halt) if self.halt and not self.halt.over else ""

    @property
    def holds(self) -> str:
        """Why nothing begins here; empty while it does."""
        return self.why or self.leaving

    def check(self) -> None:
        """Raises Stopped while nothing begins here."""
        if why := self.holds:
            raise Stopped(why, LOOK_AGAIN_S)


LOOK_S = 1.0
TOLD_AT_ONCE = 64
ON_THE_BUS = "written on the bus"
SETTLED_WITHIN = timedelta(seconds=10)
"""After which another process is not waited for any more that lets everything go on."""

log = logging.getLogger(__name__)


class Turns(Protocol):
    """What moves runs, as far as the switch needs it."""

    accepted: asyncio.Event
    """Set when queued runs may begin."""

    async def take(self, run_id: str, event: StoodStill) -> Any:
        """The run hears the event. Raises Damaged, TryAgain."""


class Halting:
    """`going_on` is called whenever everything goes on, besides that queued runs begin."""

    def __init__(
        self,
        brake: Brake,
        halts: Halts,
        board: Board,
        turns: Turns,
        archive: Archive,
        clock: Clock,
        going_on: Callable[[], object],
    ) -> None:
        self._brake = brake
        self._halts = halts
        self._board = board
        self._turns = turns
        self._archive = archive
        self._clock = clock
        self._going_on = going_on
        self._deciding = asyncio.Lock()
        self._by_another = False
        """Whether the newest of what is known was made durable by another process of the store."""

    async def recall(self) -> None:
        """What was in force when the last process ended, or was written on the bus since. Before anything is resumed.

        Raises TryAgain for a store that cannot be read.
        """
        self._brake.halt = await self._halts.newest()
        with suppress(TryAgain):
            if (shown := await self._board.shown()) and self._is_news(shown):
                await self._take_from_the_bus(shown)
        if self._brake.why:
            log.warning("stopped", extra={"why": self._brake.why, "now": "`agentic go-on` lets everything go on"})
        await self._settle()

    async def stop(self, *, by: str, reason: str) -> Halt:
        """From now on no run begins, and no turn, model call or tool request. Durable when it returns; the one that is
        in force where everything is stopped already. Raises TryAgain, and everything goes on."""
        async with self._deciding:
            known = self._brake.halt
            if known and self._brake.why and known.until is None:
                return known
            halt = self._next(since=self._clock.now(), by=by, reason=reason)
            await self._take(halt)
            log.warning("stopped", extra={"by": by, "why": reason})
        await self._show(halt)
        return halt

    async def go_on(self, *, by: str) -> Halt | None:
        """Everything goes on from where it was; None where nothing is stopped. Raises TryAgain: it is stopped still."""
        async with self._deciding:
            known = self._brake.halt
            if known is None or not self._brake.why:
                return None
            if known.until is None:
                await self._take(known.model_copy(update={"until": self._clock.now(), "until_by": by}))
            await self._settle()
            log.warning("everything goes on", extra={"by": by})
        return self._brake.halt

    def hear(self, halt: Halt) -> None:
        """Another process of the store has stopped everything, or let it go on."""
        known, stood = self._brake.halt, self._brake.why
        if known and _come(known) >= _come(halt):
            return
        self._brake.halt, self._by_another = halt, True
        if self._brake.why and not stood:
            log.warning("stopped", extra={"why": self._brake.why})
        elif stood and not self._brake.why:
            log.warning("everything goes on", extra={"by": halt.until_by})
            self._begin_again()

    async def keep_shown(self) -> None:
        """See to it, for ever, that the bus shows what is in force."""
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(TryAgain):
                await self.look()

    async def look(self) -> None:
        """Take up a stop that the bus shows, and put right what else it shows. Raises TryAgain."""
        async with self._deciding:
            await self._compare()
            halt = self._brake.halt
            if self._by_another and halt and halt.until and self._clock.now() > halt.until + SETTLED_WITHIN:
                await self._settle()

    async def _compare(self) -> None:
        shown = await self._board.shown()
        if shown and self._is_news(shown):
            await self._take_from_the_bus(shown)
        if self._brake.halt and shown != self._brake.halt:
            await self._board.show(self._brake.halt)

    def _is_news(self, shown: Halt) -> bool:
        """Whether it is a stop that is not known here. That one is over counts only by our own word."""
        known = self._brake.halt.number if self._brake.halt else 0
        return shown.number > known and not shown.over and not self._brake.why

    async def _take_from_the_bus(self, shown: Halt) -> None:
        since = min(shown.since, self._clock.now())
        await self._take(self._next(since=since, by=f"{shown.by} ({ON_THE_BUS})", reason=shown.reason))
        log.warning("stopped", extra={"why": self._brake.why})

    def _next(self, *, since: datetime, by: str, reason: str) -> Halt:
        known = self._brake.halt
        since = known.since if known and not known.over else since
        return Halt(number=known.number + 1 if known else 1, since=since, by=by, reason=reason)

    async def _settle(self) -> None:
        halt = self._brake.halt
        if halt is None or halt.until is None or halt.over:
            return
        told = StoodStill(at=halt.until, since=halt.since, by=halt.by, reason=halt.reason)
        run_ids = await self._archive.unsettled(halt.until)
        for some in (run_ids[i : i + TOLD_AT_ONCE] for i in range(0, len(run_ids), TOLD_AT_ONCE)):
            await asyncio.gather(*(self._tell(run_id, told) for run_id in some))
        await self._take(halt.model_copy(update={"over": True}))
        self._begin_again()
        await self._show(self._brake.halt or halt)

    def _begin_again(self) -> None:
        self._turns.accepted.set()
        self._going_on()

    async def _tell(self, run_id: str, told: StoodStill) -> None:
        with suppress(Damaged):  # it is left alone
            await self._turns.take(run_id, told)

    async def _take(self, halt: Halt) -> None:
        await self._halts.keep(halt)
        self._brake.halt, self._by_another = halt, False

    async def _show(self, halt: Halt) -> None:
        with suppress(TryAgain):  # `keep_shown` does it
            await self._board.show(halt)


def _come(halt: Halt) -> tuple[int, bool, bool]:
    return halt.number, halt.until is not None, halt.over


WHY = "this agent is being drained, and ends: ask another one, or this one once it was started again"
LOOK_AGAIN_AT_CALLS_S = 0.1
_end: Callable[[], None] = partial(signal.raise_signal, signal.SIGTERM)


@dataclass(slots=True, kw_only=True)
class Draining:
    """`leave` ends listening to the bus, and gives what is in hand there so many seconds; `thinking` says how many
    model calls are under way. `end` ends the process."""

    brake: Brake
    background: Background
    leave: Callable[[float], Awaitable[None]]
    thinking: Callable[[], int]
    end: Callable[[], None] = field(default=_end)
    within_s: float = 0.0

    @property
    def begun(self) -> bool:
        return bool(self.brake.leaving)

    def begin(self, within_s: float, *, by: str) -> None:
        """What does not end `within_s` is given up, as at a stop. Asked again, nothing changes."""
        if self.begun:
            return
        self.brake.leaving, self.within_s = WHY, within_s
        log.warning("draining", extra={"by": by, "within_s": within_s, "model_calls": self.thinking()})
        self.background.start(self._drain())

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self.within_s):
                await self.leave(self.within_s)
                while self.thinking():  # noqa: ASYNC110 - each ends by a commit of its own
                    await asyncio.sleep(LOOK_AGAIN_AT_CALLS_S)
        except TimeoutError:
            log.warning("given up", extra={"model_calls": self.thinking(), "after_s": self.within_s})
        self.end()
