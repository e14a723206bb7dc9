"""Queued turns: performing one that any agent takes, and queuing those that are due."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_service.cluster import Cluster, due_turn
from agent_service.core.state import RunState
from agent_service.kill_switch import KillSwitch
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, turn_id
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.envelope import MSG_ID
from tests.kit.fakes import FakeClock
from tests.kit.runs import NOON, accepted, run_id, started

RUN = run_id(1)


@dataclass
class House:
    """Parts around queued turns; `said` records calls."""

    state: RunState | None
    fallen_due: dict[str, int] = field(default_factory=dict)
    late: list[tuple[str, int]] = field(default_factory=list)
    full: bool = False
    said: list[str] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)
    kill_switch: KillSwitch = field(default_factory=KillSwitch)
    observers: list[Any] = field(default_factory=list)
    turns: Any = None
    recovery: Any = None
    intake: Any = None
    ground: Any = None
    halt_control: Any = field(default_factory=lambda: SimpleNamespace(adopt=None))

    @property
    def cluster(self) -> Cluster:
        here = cast("Any", self)
        self.turns = self.recovery = self.intake = here
        self.ground = SimpleNamespace(link=here)
        return Cluster(here, here, here)

    def mark_dispatched(self, *_: Any) -> None:
        raise AssertionError("a queue dispatches nothing")

    async def current(self, *_: Any) -> RunState | None:
        return self.state

    async def fire(self, *_: Any) -> None:
        self.said.append("fire")

    async def entries_under(self, *_: Any) -> set[int]:
        return set()

    async def due(self, *_: Any) -> list[str]:
        return list(self.fallen_due)

    def version(self, run_id: str) -> int:
        return self.fallen_due[run_id]

    def overdue_turns(self) -> list[tuple[str, int]]:
        return self.late

    def turn_seen(self, turn: str) -> None:
        self.late = [one for one in self.late if turn_id(*one) != turn]

    async def store(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        assert subject == subjects.TURN
        assert headers[MSG_ID].startswith(json.loads(body)["run_id"])
        if self.full:
            raise TryAgain("the stream is full")
        self.said.append(headers[MSG_ID])

    async def take(self, turn: str, *, at: datetime = NOON) -> list[str]:
        """One agent performs a queued turn."""
        self.clock = FakeClock(at)
        body = json.dumps({"run_id": RUN}).encode()
        message = InboundMessage(subject=subjects.TURN, body=body, place="7", headers={MSG_ID: turn})
        CURRENT_MESSAGE.set(message)
        await self.cluster.receive(message)
        return self.said


async def test_a_turn_that_one_agents_clock_calls_due_is_kept_until_it_is() -> None:
    begun = started(accepted(1)).state
    assert begun.due_at
    turn = due_turn(RUN, begun.version)
    with pytest.raises(TryAgain) as early:
        await House(begun).take(turn, at=begun.due_at - timedelta(seconds=40))
    assert early.value.delay_s == pytest.approx(40)
    assert await House(begun).take(turn, at=begun.due_at) == ["fire"]
    assert await House(begun).take(due_turn(RUN, 1), at=begun.due_at - timedelta(seconds=40)) == [], "it has moved on"


async def test_what_is_due_or_missed_is_queued_once_and_not_forgotten_while_it_cannot_be() -> None:
    house = House(None, fallen_due={RUN: 4}, late=[(run_id(2), 1)], full=True)
    cluster = house.cluster
    with pytest.raises(TryAgain):
        await cluster.look()
    house.full = False
    for _ in range(2):
        await cluster.look()
    assert (house.said, house.late) == ([due_turn(RUN, 4), turn_id(run_id(2), 1)], [])
