"""Agents that share a store; loaded only with such a store.

A turn that no inbound message drives is a message of a work queue:

wake, signal by HTTP ─▶ entry ─▶ turn queued ─▶ any agent takes it, and acknowledges once the run rests
due timer, entry without a turn ─▶ every agent queues the turn, and the queue keeps one

Nothing waits in memory: a postponed turn fails, so that its message is redelivered.
"""

import asyncio
import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import field
from datetime import UTC, datetime
from math import ceil
from typing import NoReturn

from agent_service.bootstrap import Agent
from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, turn_id
from agent_service.run.journal import Commit
from agent_service.run.outbox import Outbox
from agent_service.run.turn import Turns
from agent_service.store.messages import RemoteCommit
from agent_service.store.shared import SharedStore
from groundwork.service.errors import Failure, TryAgain
from schemas import subjects
from schemas.envelope import MSG_ID
from schemas.values import dataclass

RUN_ID, FORGOTTEN_AT = "run_id", "forgotten_at"
LOOK_S = 0.5
QUEUED_AGAIN_S = 10.0
"""A due turn is queued again after this time: its message may be lost."""
TOGETHER_S = 2
"""Outages are named by this part of the clock, so that agents which notice the same one mostly queue one message. Two
outages within it count as one, and an agent's start counts as one: so it is short."""
AGAIN_S = 1.0

log = logging.getLogger(__name__)


class Redelivery(Outbox):
    """Remembers nothing: an unacknowledged message stands for effects that are not done."""

    queues = True

    def begin(self, run_id: str, seqs: Iterable[int]) -> None: ...

    def done(self, run_id: str, seqs: Iterable[int]) -> None: ...

    def postpone(self, run_id: str, seqs: Collection[int], error: TryAgain | None = None) -> None:
        """Raises an error, so that the message is redelivered."""
        raise error or TryAgain(f"run {run_id}: what entry {max(seqs)} asks for is not done", AGAIN_S)


@dataclass(slots=True)
class Cluster:
    """Queue of turns, and its agent's part in it."""

    agent: Agent
    store: SharedStore
    turns: Turns = field(init=False)
    _queued: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.turns = self.agent.turns
        self.turns.outbox, self.turns.again = Redelivery(self.store.mark_dispatched), self.again
        self.turns.observers.insert(0, self.committed)
        self.store.on_remote_commit, self.store.on_halt = self._on_remote_commit, self.agent.halt_control.adopt

    # queuing

    def committed(self, change: Commit) -> None:
        if CURRENT_MESSAGE.get() is None or change.before is None:
            run_id = change.entry.run_id
            self.agent.background.start(self._put, {RUN_ID: run_id}, turn_id(run_id, change.entry.seq))
            self._abandon_superseded(run_id)  # another agent may take the turn

    async def inform_bus(self, forgotten_at: datetime) -> None:
        """Has one agent publish again what the bus may have lost. Raises TryAgain."""
        until = datetime.fromtimestamp(ceil(forgotten_at.timestamp() / TOGETHER_S) * TOGETHER_S, UTC)
        await self._put({FORGOTTEN_AT: until.isoformat()}, f"say-again:{until.timestamp():.0f}")

    async def keep_time(self) -> NoReturn:
        while True:
            try:
                await self.look()
            except TryAgain as error:
                log.warning("turns that are due are not queued", extra={"why": str(error)})
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Queues due turns, and those of entries whose agent may have died before queuing them."""
        if self.turns.kill_switch.blocked_by:
            return
        now = asyncio.get_running_loop().time()
        self._queued = {turn: at for turn, at in self._queued.items() if now - at < QUEUED_AGAIN_S}
        for run_id in await self.agent.recovery.due(self.turns.clock.now()):
            if (turn := due_turn(run_id, self.store.version(run_id))) not in self._queued:
                await self._put({RUN_ID: run_id}, turn)
                self._queued[turn] = now
        for run_id, seq in self.store.overdue_turns():
            await self._put({RUN_ID: run_id}, turn_id(run_id, seq))
            self.store.turn_seen(turn_id(run_id, seq))

    async def _put(self, request: dict[str, str], name: str) -> None:
        """Raises TryAgain."""
        try:
            await self.agent.ground.link.store(subjects.TURN, json.dumps(request).encode(), {MSG_ID: name})
        except Failure as error:
            raise TryAgain(f"turn {name} is not queued: {error}") from error

    # performing

    async def receive(self, arrival: InboundMessage) -> None:
        """Performs one queued turn. Raises TryAgain."""
        self.turns.kill_switch.check()
        body = json.loads(arrival.body)
        if forgotten_at := body.get(FORGOTTEN_AT):
            await self.agent.receiving.inform_bus(datetime.fromisoformat(forgotten_at), self.turns.clock.now())
            return
        try:
            await self._turn(body[RUN_ID], arrival)
        except Damaged as error:
            log.info("left alone", extra={"run_id": error.run_id})

    async def again(self, run_id: str) -> None:
        """Performs what earlier deliveries of the current message left, and what the entry that queued it asks for."""
        message = CURRENT_MESSAGE.get()
        if message is None or not (message.delivered > 1 or message.turn):
            return
        if seqs := await self.store.entries_under(run_id, message):
            if message.delivered > 1 and self.agent.traces:
                self.agent.traces.send_again(run_id)
            await self.agent.recovery.resume(run_id, seqs)

    async def _turn(self, run_id: str, arrival: InboundMessage) -> None:
        await self.again(run_id)
        state, now = await self.turns.current(run_id), self.turns.clock.now()
        if state and state.status is Status.QUEUED:
            await self.turns.follow(await self.agent.recovery.intake.begin(run_id))
        elif state and state.due_at:
            due_s = (state.due_at - now).total_seconds()
            if due_s <= 0:
                await self.agent.recovery.fire(run_id, now)
            elif arrival.turn == due_turn(run_id, state.version):
                raise TryAgain(f"run {run_id} is not due by the clock of this machine", due_s)

    # commits of other agents

    def _on_remote_commit(self, commit: RemoteCommit) -> None:
        """Abandons model calls in flight that the commit has ended. Missing it is harmless: the store's version catches
        it.
        """
        self._abandon_superseded(commit.run_id)
        for observe in self.agent.remote_observers:
            observe(commit)

    def _abandon_superseded(self, run_id: str) -> None:
        if self.turns.model_caller.calls_of(run_id):
            self.agent.background.start(self._abandon_calls, run_id)

    async def _abandon_calls(self, run_id: str) -> None:
        run = await self.store.load(run_id)
        asks = run.state.active_call if run else None
        for call, since in self.turns.model_caller.calls_of(run_id).items():
            if run and since > run.state.version:
                continue  # its own reserve is being committed
            if asks is None or asks.call != call or await self.store.superseded(run_id, call, since):
                self.turns.model_caller.abandon(run_id, call)


def due_turn(run_id: str, version: int) -> str:
    return f"{turn_id(run_id, version)}:due"
