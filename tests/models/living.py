"""An agent whose mind is a real adapter and its server, on a store and a bus that outlive its crashes."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agent_service.bus.argument_schemas import ArgumentSchemas
from agent_service.core.limits import LimitPolicy
from agent_service.core.state import Limits, RunState
from agent_service.intake import COUNTED, Arrival, Intake
from agent_service.journal import Entry
from agent_service.ports import Model
from agent_service.publisher import Publisher
from agent_service.recovery import Recovery
from agent_service.thinker import Thinker
from agent_service.turn import Background, Turns
from groundwork.service.counts import Counts
from schemas import keys, subjects
from schemas.catalog import ToolOffer
from tests.kit.crashes import Crash, Points
from tests.kit.fakes import FakeClock, MemoryStore
from tests.shell.faults import FaultyStore
from tests.shell.world import APPEND, FOR_THE_AGENT, Delivery, FakeBus, FakeGateway, Offer


class Living:
    """All of it. A crash strikes where `faults` says, and a new life begins."""

    def __init__(
        self, model: Model, limits: Limits, *, fused: bool = True, tools: tuple[ToolOffer, ...] = (APPEND,)
    ) -> None:
        self.faults = Points()
        self.clock = FakeClock()
        self.bus = FakeBus(self.faults)
        self.gateway = FakeGateway(self.bus)
        self._store = MemoryStore()
        self._model, self._limits, self._fused = model, limits, fused
        self._offer = Offer(tools)
        self._begin()

    async def run(self, goal: str = "append twice") -> RunState:
        """A run, until there is nothing left to do for now."""
        return await self.hear(subjects.START, {"goal": goal}, keys.start("a"))

    async def hear(self, subject: str, payload: dict[str, Any], key: str) -> RunState:
        """Something is said on the bus."""
        self.bus.put(subject, json.dumps({"type": subject, "payload": payload, "dedupe_key": key}).encode(), key)
        return await self._until_quiet()

    async def wait(self, seconds: float) -> RunState:
        """Let time pass, and what falls due be done."""
        self.clock.advance(seconds)
        async with asyncio.TaskGroup() as group:
            await self._recovery(group).fire_due(self.clock.now())
        return await self._until_quiet()

    async def next_life(self) -> None:
        """The process is gone, and another begins with what was stored."""
        self._begin()
        async with asyncio.TaskGroup() as group:
            await self._recovery(group).resume_all()

    async def state(self) -> RunState:
        (line,) = await self._store.runs(status=None, limit=10, before=None)
        run = await self._store.load(line.run_id)
        assert run is not None
        return run.state

    async def entries(self, run_id: str) -> Sequence[Entry]:
        return await self._store.entries(run_id)

    async def _until_quiet(self) -> RunState:
        while self.bus.unacknowledged:
            try:
                await self._deliver(self.bus.unacknowledged[0])
            except Crash:
                await self.next_life()
        return await self.state()

    async def _deliver(self, delivery: Delivery) -> None:
        if delivery.subject.startswith(subjects.TOOL_REQUEST):
            self.gateway.handle(delivery)
        elif delivery.subject in FOR_THE_AGENT:
            await self._intake.receive(Arrival(subject=delivery.subject, body=delivery.body, place=str(delivery.place)))
            for run_id in await self._store.queued(1):
                await self._intake.begin(run_id)
        self.bus.unacknowledged.remove(delivery)

    def _begin(self) -> None:
        self._faulty, self._publisher = FaultyStore(self._store, self.faults), Publisher(self.bus, self.clock)
        thinker = Thinker(self._model, ArgumentSchemas(), self.clock, slots=4)
        self._turns = Turns(self._faulty, self._publisher, thinker, self.clock, lambda _: None)
        policy = LimitPolicy(defaults=self._limits, cap_steps=self._limits.max_steps)
        self._intake = Intake(
            self._turns, self._offer, self.clock, policy=policy, fused=self._fused, counts=Counts(COUNTED)
        )

    def _recovery(self, group: asyncio.TaskGroup) -> Recovery:
        return Recovery(self._turns, self._faulty, self._store, self._publisher, Background(group), slots=4)
