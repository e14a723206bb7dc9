"""Turns without an inbound message, for agents that share a store: each is a message of a work queue.

wake, signal by HTTP ─▶ entry ─▶ turn queued ─▶ any agent takes it, and acknowledges once the run rests
due timer, entry without a turn ─▶ every agent queues the turn, and the queue keeps one
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import field
from datetime import datetime
from typing import NoReturn, Protocol

from agent_service.background import Background
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.kill_switch import KillSwitch
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, turn_id
from agent_service.run.intake import Intake
from agent_service.run.model_calls import ModelCaller
from agent_service.run.ports import Clock, RemoteCommit
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Turns
from agent_service.store.shared import SharedStore
from agent_service.store.sqlite import RunStore
from groundwork.service.errors import TryAgain
from schemas.values import dataclass

RUN_ID, FORGOTTEN_AT = "run_id", "forgotten_at"
LOOK_S = 0.5
DUE_AT_ONCE = 200
QUEUED_AGAIN_S = 10.0
"""A due turn is queued again after this time: its message may be lost."""

log = logging.getLogger(__name__)


class Queue(Protocol):
    async def put(self, run_id: str, turn: str) -> None:
        """Raises TryAgain."""


async def _nothing(_: datetime) -> None: ...


def _unheard(_: str) -> None: ...


@dataclass(slots=True)
class QueuedTurns:
    store: SharedStore
    turns: Turns
    intake: Intake
    recovery: Recovery
    kill_switch: KillSwitch
    clock: Clock
    republish: Callable[[datetime], Awaitable[None]] = field(init=False, default=_nothing)
    """Publishes again what the bus may have lost at an instant."""
    on_redelivery: Callable[[str], object] = field(init=False, default=_unheard)

    async def receive(self, arrival: InboundMessage) -> None:
        """Performs one queued turn. Raises TryAgain."""
        self.kill_switch.check()
        body = json.loads(arrival.body)
        if forgotten_at := body.get(FORGOTTEN_AT):
            await self.republish(datetime.fromisoformat(forgotten_at))
            return
        try:
            await self._turn(body[RUN_ID])
        except Damaged as error:
            log.info("left alone", extra={"run_id": error.run_id})

    async def again(self, run_id: str) -> None:
        """Performs what earlier deliveries of the current message left, and what the entry that queued it asks for."""
        message = CURRENT_MESSAGE.get()
        if message is None or not message.may_have_begun:
            return
        if seqs := await self.store.entries_under(run_id, message):
            if message.delivered > 1:
                self.on_redelivery(run_id)
            await self.recovery.resume(run_id, seqs)

    async def _turn(self, run_id: str) -> None:
        await self.again(run_id)
        state, now = await self.turns.current(run_id), self.clock.now()
        if state and state.status is Status.QUEUED:
            await self.intake.begin(run_id)
        elif state and (due_s := _due_in(state, now)) is not None:
            if due_s <= 0:
                await self.recovery.fire(run_id, now)
            elif (message := CURRENT_MESSAGE.get()) and message.turn == due_turn(run_id, state.version):
                raise TryAgain(f"run {run_id} is not due by the clock of this machine", due_s)


def _due_in(state: RunState, now: datetime) -> float | None:
    """Seconds."""
    return (state.due_at - now).total_seconds() if state.due_at else None


def due_turn(run_id: str, version: int) -> str:
    return f"{turn_id(run_id, version)}:due"


@dataclass(slots=True)
class TurnScheduler:
    """Queues due turns, and those of entries whose agent may have died before queuing them."""

    store: SharedStore
    queue: Queue
    kill_switch: KillSwitch
    clock: Clock
    _queued: dict[str, float] = field(init=False, default_factory=dict)

    async def keep(self) -> NoReturn:
        while True:
            try:
                await self.look()
            except TryAgain as error:
                log.warning("turns that are due are not queued", extra={"why": str(error)})
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        if self.kill_switch.blocked_by:
            return
        for run_id, version in await self.store.due_turns(self.clock.now(), DUE_AT_ONCE):
            await self._put(run_id, due_turn(run_id, version))
        for run_id, seq in self.store.overdue_turns():
            await self._put(run_id, turn_id(run_id, seq))
            self.store.turn_seen(turn_id(run_id, seq))

    async def _put(self, run_id: str, turn: str) -> None:
        now = asyncio.get_running_loop().time()
        self._queued = {known: at for known, at in self._queued.items() if now - at < QUEUED_AGAIN_S}
        if turn not in self._queued:
            await self.queue.put(run_id, turn)
            self._queued[turn] = now


@dataclass(slots=True)
class RemoteCommitListener:
    """Invalidates cached runs and model calls in flight when another agent commits. Missing a commit is harmless: the
    store's version catches it.
    """

    turns: Turns
    model_caller: ModelCaller
    store: RunStore
    background: Background

    def on_commit(self, commit: RemoteCommit) -> None:
        self.turns.forget(commit.run_id, commit.seq)
        if self.model_caller.calls_of(commit.run_id):
            self.background.start(self._look(commit.run_id))

    async def _look(self, run_id: str) -> None:
        run = await self.store.load(run_id)
        asks = run.state.active_call if run else None
        for call, since in self.model_caller.calls_of(run_id).items():
            if asks is None or asks.call != call or await self.store.superseded(run_id, call, since):
                self.model_caller.abandon(run_id, call)
