"""Recovery: resumes interrupted entries, starts queued runs and fires due timers.

Messages are rebuilt from the current state (`messages.outstanding`) and the undispatched entries (`messages.of_entry`),
with the original ids, byte for byte. A single agent does so at its start for each run that is not fully dispatched;
among several, the redelivered message does. After an outage of the bus, and at the start, the messages of live and
recently ended runs are published again: a bus may lose what it had not synced, and drops duplicates. Attempts that may
have been answered meanwhile are sent again. Messages voided by a reopening are not published.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

from agent_service.background import Background
from agent_service.core import results
from agent_service.core.events import TimerFired, ToolReturned
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, NewerVersion, Stopped, VersionMoved
from agent_service.run import messages
from agent_service.run.children import ChildRuns
from agent_service.run.intake import Intake
from agent_service.run.journal import JournalRecord, Run
from agent_service.run.messages import OutgoingMessage
from agent_service.run.ports import Hearing
from agent_service.run.turn import Turns
from agent_service.store.runs import RunStore
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.json_log import Outage
from groundwork.service.machine import set_within
from schemas.values import dataclass, replace

DUE_EVERY_S = 0.5
DUE_AT_ONCE, HELD_AT_ONCE = 200, 5_000
"""Runs that fire at the same time; and runs that are looked at while some have to wait, as those are the first."""
ABSENT_S = 5.0
"""Time without a look at the timers after which the process was absent: down, stopped, or its machine asleep."""
HEARD_WITHIN_S = 10.0
"""Time for answers to arrive after an absence, also from executors that were absent, too."""
LEFT_EVERY_S = 2.0
QUEUED_EVERY_S = 1.0
REPUBLISHED_AT_ONCE = 64
MOST_LEFT = 100_000
FORGETTABLE = timedelta(seconds=60)
"""Period that the bus may have lost: far more than a sync interval and a publish with all its retries."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovery:
    """`slots`: runs that begin, and runs of `try_again` that are resumed, at the same time."""

    intake: Intake
    children: ChildRuns
    background: Background
    slots: int
    turns: Turns = field(init=False)
    store: RunStore = field(init=False)
    _resuming: asyncio.Semaphore = field(init=False)
    _starting: set[str] = field(init=False, default_factory=set)
    _outage: Outage = field(init=False, default_factory=lambda: Outage("what runs begin with", log))
    hearing: Hearing = field(init=False)
    _looked_at: datetime | None = field(init=False, default=None)
    _unheard: bool = field(init=False, default=False)
    """True after an absence, until people have been heard."""
    _unanswered: bool = field(init=False, default=False)
    """True after an absence, until executors have been heard, too."""
    _held: dict[str, tuple[int, bool]] = field(init=False, default_factory=dict)
    """Runs whose timers wait for news, by version and `unheard`: a look at a run costs a read."""
    resumed: set[str] = field(init=False, default_factory=set)
    """Runs whose messages the start publishes: the first `republish` leaves them out."""

    def __post_init__(self) -> None:
        self.turns, self.store = self.intake.turns, self.intake.turns.store
        self._resuming = asyncio.Semaphore(self.slots)

    async def find_left(self) -> int:
        """Finds the runs that `try_again` resumes, and returns their number."""
        for run_id, seqs in await self.store.undispatched(MOST_LEFT):
            self.turns.outbox.found(run_id, seqs)
        self.resumed = set(self.turns.outbox.pending)
        return len(self.resumed)

    def go_on(self) -> None:
        """Call it after a stop."""
        self.turns.accepted.set()
        self.try_again()

    def try_again(self) -> None:
        outbox = self.turns.outbox
        for run_id in set(outbox.pending) - (outbox.stopped if self.turns.kill_switch.blocked_by else set()):
            self.background.start(self._resume_left, run_id, outbox.take(run_id))

    async def republish(self, forgotten_at: datetime, now: datetime) -> tuple[set[str], list[RunState]]:
        """Publishes again what the bus may have lost at `forgotten_at`. Later decisions, and runs resumed at the start,
        publish by themselves: an executor without a consumer would receive them twice. Returns the places of results
        that answered without naming an attempt, and the runs whose answers may be lost. Raises TryAgain while the bus
        is away.
        """
        places, unheard = set[str](), list[RunState]()
        run_ids = await self.store.changed_since(forgotten_at - FORGETTABLE, or_open=True)
        for some in (run_ids[i : i + REPUBLISHED_AT_ONCE] for i in range(0, len(run_ids), REPUBLISHED_AT_ONCE)):
            for run, has_moved in await asyncio.gather(*(self._republish(one, forgotten_at, now) for one in some)):
                places.update(run.state.places if run else ())
                unheard += [run.state] if run and not has_moved and results.dropped_answers(run.state) else []
        log.info("the bus is informed", extra={"runs": len(set(run_ids) - self.resumed)})
        self.resumed = set()
        return places, unheard

    async def retry_unheard(self, unheard: Iterable[RunState], now: datetime) -> None:
        """Starts the next attempt of requests whose answers the bus may have lost. Raises TryAgain."""
        for state in unheard:
            newest = state
            with contextlib.suppress(VersionMoved, Damaged):  # its answer has come, or the run is left alone
                for result in results.dropped_answers(replace(state, updated_at=now)):
                    led_to = await self.turns.take(state.run_id, ToolReturned(at=now, result=result), made_of=newest)
                    newest = led_to.state or newest

    async def due(self, now: datetime) -> list[str]:
        """Runs whose timers are due. After an absence of this process or of the bus, and during that of the bus, those
        are left out for which something may have come meanwhile.
        """
        if is_there := self.hearing.is_there():
            self._note_absence(now)
        if is_there and not self._unanswered:
            self._held.clear()
            return list(await self.store.due(now, DUE_AT_ONCE))
        unheard, run_ids = self._unheard or not is_there, await self.store.due(now, HELD_AT_ONCE)
        free = [one for one in run_ids if not await self._is_held(one, now, unheard=unheard)]
        return free[:DUE_AT_ONCE]

    async def _is_held(self, run_id: str, now: datetime, *, unheard: bool) -> bool:
        """True if a result may have come or, while people are `unheard`, a ruling, a cancel or a later deadline."""
        looked_at = self.store.version(run_id), unheard
        if self._held.get(run_id) == looked_at:
            return True
        try:
            run = await self._readable(run_id)
        except TryAgain:  # the entries of one run cannot be read for now
            return True
        is_over = run and (run.state.status is Status.PAUSED or run.state.effective_deadline <= now)
        is_held = run is not None and bool(run.state.sent or (unheard and is_over))
        if is_held:
            self._held[run_id] = looked_at
        return is_held

    def _note_absence(self, now: datetime) -> None:
        looked_at, self._looked_at = self._looked_at, now
        if looked_at and (now - looked_at).total_seconds() <= ABSENT_S:
            return
        self._unheard = True
        if not self._unanswered:
            self._unanswered = True
            self.background.start(self._catch_up)

    async def _catch_up(self) -> None:
        try:
            await asyncio.sleep(HEARD_WITHIN_S)
            await self.hearing.drain()
            self._unheard = False
            with contextlib.suppress(Failure):
                await self.hearing.await_executors()
            await self.hearing.drain()
        finally:
            self._unheard = self._unanswered = False

    def fire_all(self, run_ids: Sequence[str], now: datetime) -> None:
        for run_id in run_ids:
            self.background.start(self.fire, run_id, now)

    async def fire(self, run_id: str, now: datetime) -> None:
        due = True
        while due:
            led_to = await self.turns.take(run_id, TimerFired(at=now))
            due_at = led_to.state.due_at if led_to.state and not led_to.ignored else None
            due = due_at is not None and due_at <= now

    async def keep_time(self) -> None:
        while True:
            if not self.turns.kill_switch.blocked_by:
                now = self.turns.clock.now()
                try:
                    self.fire_all(await self.due(now), now)
                except TryAgain as error:
                    log.warning("the timers cannot be read", extra={"why": str(error)})
            await asyncio.sleep(DUE_EVERY_S)

    async def keep_trying(self) -> None:
        while True:
            await asyncio.sleep(LEFT_EVERY_S)
            self.try_again()

    async def keep_starting(self) -> None:
        """Starts queued runs, oldest first: on acceptance, and periodically for runs that a crash or a missing catalog
        left.
        """
        news = self.turns.accepted
        while True:
            news.clear()
            try:
                await self._start_queued()
            except TryAgain as error:
                log.warning("the queued runs cannot be read", extra={"why": str(error)})
            await set_within(news, QUEUED_EVERY_S)

    async def _start_queued(self) -> None:
        if self.turns.kill_switch.blocked_by or len(self._starting) >= self.slots:
            return
        for run_id in await self.store.queued(self.slots + len(self._starting)):
            if run_id not in self._starting and len(self._starting) < self.slots:
                self._starting.add(run_id)
                self.background.start(self._first_turn, run_id)

    async def _first_turn(self, run_id: str) -> None:
        try:
            await self.turns.follow(await self.intake.begin(run_id))
        except TryAgain as error:
            self._outage.continues(str(error))
        else:
            self._outage.over()
            if len(self._starting) >= self.slots:
                self.turns.accepted.set()  # other runs may wait for the slot
        finally:
            self._starting.discard(run_id)

    async def _resume_left(self, run_id: str, seqs: set[int]) -> None:
        """Bounded by `slots`, so that the service answers meanwhile. No turn waits for a slot within another."""
        async with self._resuming:
            await self.resume(run_id, seqs)

    async def resume(self, run_id: str, seqs: set[int]) -> None:
        try:
            run = await self._readable(run_id)
            if run is None:
                return
            entries = await self.store.entries(run_id, min(seqs) - 1)
            records = [entry.record() for entry in entries if entry.seq in seqs and entry.seq <= run.state.version]
            call = run.state.active_call
            asks = call is not None and await self.store.may_call_model(run_id, call.call)
        except Damaged as error:
            self.store.quarantine(error)
            return
        except TryAgain:
            self.turns.outbox.postpone(run_id, seqs)
            raise
        await self.turns.resume(run.state, seqs, partial(_owed, run.state, records), asks=asks)

    async def _republish(self, run_id: str, forgotten_at: datetime, now: datetime) -> tuple[Run | None, bool]:
        """The run, if it can be read, and whether it has moved since."""
        if (run := await self._readable(run_id)) is None:
            return None, False
        has_moved = forgotten_at < run.state.updated_at <= now  # after `now`: the clock was set back meanwhile
        try:
            if not has_moved and run_id not in self.resumed:
                for message in messages.outstanding(run.state):
                    await self.turns.publisher.publish(message, at=run.state.updated_at)
            await self.children.settle(run.state, whole=True)
        except Stopped as error:
            self.turns.outbox.begin(run_id, (run.state.version,))
            self.turns.outbox.postpone(run_id, (run.state.version,), error)
        return run, has_moved

    async def _readable(self, run_id: str) -> Run | None:
        try:
            return await self.store.load(run_id)
        except (Damaged, NewerVersion):
            return None


def _owed(state: RunState, records: Iterable[JournalRecord]) -> Iterable[OutgoingMessage]:
    """Messages of the current state and of its undispatched entries, each once."""
    owed = {one.key: one for record in records for one in messages.of_entry(state, record, record.entry.seq)}
    return (owed | {one.key: one for one in messages.outstanding(state)}).values()
