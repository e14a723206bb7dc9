"""Stand-ins for tests of notifications."""

import asyncio
import base64
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from ductile_gateway.webhooks.notifications import LifecycleEvent, Notification, Try, read_event
from ductile_gateway.webhooks.outbound import NotificationOutbox, Outbound
from ductile_gateway.webhooks.settings import OutboundSettings
from groundwork.service.errors import TryAgain
from tests.gateway.parts import NOON, RUN
from tests.kit.fakes import FakeClock
from tests.kit.waiting import beside, until
from tests.ledger.kit import embedded

KEY = b"a signing key for tests only!"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
HOOK = "https://hook.example/token-1"
ENDINGS = frozenset({"agent.completed", "agent.escalated", "agent.failed", "agent.cancelled"})


def an_event(kind: str = "completed", /, *, run_id: str = RUN, **more: Any) -> Any:
    payload = {"run_id": run_id, "goal": "Find the answer — ü.", "outcome": "42"} | more
    return {"type": f"agent.{kind}", "payload": payload, "dedupe_key": f"agentic:run:{run_id}:{kind}"}


def read(event: Any, at: datetime = NOON) -> LifecycleEvent:
    return read_event(event["type"], event, at=at)


class Town:
    """Receivers and their answers, by target; those in `hangs` never answer. A new Outbound over the same town is a
    restarted gateway."""

    def __init__(
        self, folder: Path, *, subscribers: tuple[str, ...] = (), relayed: frozenset[str] = frozenset()
    ) -> None:
        self.folder = folder
        self.answers: dict[str, Callable[[Notification], Try]] = {}
        self.hangs: set[str] = set()
        self.tries: list[Notification] = []
        self.buried: list[tuple[Notification, str]] = []
        self.clock = FakeClock(NOON)
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """Number of deliveries by target and outcome."""
        self.agent_away = False
        self.outbox: NotificationOutbox
        named = {name: {"url": f"https://{name}.example/", "secret": SECRET} for name in subscribers}
        relay = {"url": "http://localhost:1", "secret": "a-relay-secret-for-tests", "types": sorted(relayed)}
        told = {"relay": relay if relayed else None, "subscriptions": named}
        self.settings = OutboundSettings.model_validate(told)

    async def send(self, delivery: Notification) -> Try:
        self.tries.append(delivery)
        await (asyncio.Event().wait() if delivery.target in self.hangs else asyncio.sleep(0))
        return self.answers[delivery.target](delivery) if delivery.target in self.answers else Try("arrived")

    async def bury(self, delivery: Notification, why: str) -> None:
        self.buried.append((delivery, why))

    async def callback_of(self, run_id: str) -> str | None:
        if self.agent_away:
            raise TryAgain("no agent answers")
        return HOOK if run_id == RUN else None

    def _note(self, target: str, outcome: str) -> None:
        if outcome != "put_off":
            self.outcomes[target, outcome] += 1

    @contextlib.asynccontextmanager
    async def telling(self) -> AsyncIterator[Outbound]:
        self.outcomes.clear()
        self.clock.rule()
        async with embedded(self.folder)() as stores:
            self.outbox = stores.outbox
            outbound = Outbound(
                self.settings, self.outbox, self.send, self.callback_of, self.bury, self._note, look_s=0.01
            )
            async with beside(outbound.run()):
                yield outbound

    async def tells(self, *events: Any) -> Outbound:
        """A gateway that takes these events in order, and runs until nothing is due."""
        async with self.telling() as outbound:
            for event in events:
                await outbound.take(read(event))
                await self.settled()
        return outbound

    async def pass_by(self, seconds: float, *, step_s: float) -> None:
        """Lets time pass in steps, with all due attempts made in each."""
        while seconds > 0:
            self.clock.advance(min(step_s, seconds))
            seconds -= step_s
            await self.settled()

    async def settled(self) -> None:
        await until(lambda: self.outbox.lanes_due(self.clock.now()), lambda due: not due)
