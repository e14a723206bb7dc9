"""A process that is drained takes nothing new, ends what it has in hand, and then itself."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from agent_service.background import Background
from agent_service.kill_switch import Brake, Draining
from tests.kit.waiting import until


@dataclass
class Process:
    """One whose model calls and messages end when the test says so."""

    group: asyncio.TaskGroup
    brake: Brake = field(default_factory=Brake)
    calls: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def draining(self) -> Draining:
        return Draining(
            brake=self.brake,
            background=Background(self.group),
            leave=self.leave,
            thinking=lambda: self.calls,
            end=self.ended.set,
        )

    async def leave(self, _: float) -> None:
        await self.left.wait()


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    async with asyncio.TaskGroup() as group:
        yield Process(group)


async def test_it_ends_when_messages_and_model_calls_have_ended_and_not_before(process: Process) -> None:
    process.calls = 1
    draining = process.draining()
    draining.begin(9.0, by="somebody")
    process.left.set()
    await asyncio.sleep(0.3)
    assert not process.ended.is_set()
    process.calls = 0
    await until(process.ended.is_set)


async def test_what_does_not_end_in_time_is_given_up(process: Process) -> None:
    process.calls = 1
    process.draining().begin(0.1, by="somebody")
    await until(process.ended.is_set)
