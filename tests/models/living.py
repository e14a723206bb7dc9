"""An agent whose mind is a real adapter and its server, in a world that outlives its crashes."""

import json
from collections.abc import Sequence
from typing import Any

from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.state import RunState
from agent_service.run.journal import Entry
from agent_service.run.ports import Model
from schemas.catalog import ToolOffer
from tests.shell.world import APPEND, World


class Living(World):
    """One run, told of by what has become of it when there is nothing left to do for now."""

    def __init__(
        self, model: Model, limits: Limits, *, fused: bool = True, tools: tuple[ToolOffer, ...] = (APPEND,)
    ) -> None:
        policy = LimitPolicy(defaults=limits, cap_steps=limits.max_steps)
        super().__init__(model=model, policy=policy, fused=fused, tools=tools)

    async def run(self, goal: str = "append twice") -> RunState:
        self.start(goal)
        return await self._quiet()

    async def hear(self, subject: str, payload: dict[str, Any], key: str) -> RunState:
        """Something is said on the bus."""
        self.bus.put(subject, json.dumps({"type": subject, "payload": payload, "dedupe_key": key}).encode(), key)
        return await self._quiet()

    async def wait(self, seconds: float) -> RunState:
        """Let time pass, and what falls due be done."""
        self.clock.advance(seconds)
        await self.fire_timers()
        return await self._quiet()

    async def next_life(self) -> None:
        """The process is gone, and another begins with what was stored."""
        self.build_anew()
        await self.resume()

    async def entries(self, run_id: str) -> Sequence[Entry]:
        return await self.store.entries(run_id)

    async def _quiet(self) -> RunState:
        await self.until_quiet()
        return await self.state()
