"""Turns whose effects or observers break, and a process that is drained."""

import asyncio
from typing import Any

import pytest

from agent_service.background import Background
from agent_service.core.events import RunStarted
from agent_service.core.waiting import Status
from agent_service.kill_switch import Brake, Draining
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Turns
from tests.core.cues import RUN_ID, queued
from tests.core.script import NOON
from tests.kit.fakes import FakeClock
from tests.kit.waiting import until
from tests.shell.stored import stored


class Quiet:
    async def publish(self, *_: object) -> None:
        return


class Thinks:
    """Asks no model, or breaks."""

    def __init__(self, breaks: bool) -> None:
        self.asked, self._breaks = 0, breaks

    async def think(self, *_: object) -> None:
        self.asked += 1
        if self._breaks:
            raise RuntimeError("nobody foresaw it")

    def abandon(self, *_: object) -> None:
        return


async def test_effects_that_break_are_tried_again_and_not_for_ever() -> None:
    publisher, thinker = Quiet(), Thinks(breaks=True)
    async with stored(queued()) as store:
        parts: Any = (store, publisher, thinker, FakeClock(), lambda _: None, Brake())
        turns = Turns(*parts)
        await turns.take(RUN_ID, RunStarted(at=NOON, skills=()))
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                also: Any = (store, store, publisher, Background(group), Brake())
                Recovery(turns, *also, slots=1).try_again()
        run = await store.load(RUN_ID)
    assert run
    assert (run.state.status, run.state.ending_class) == (Status.FAILED, "internal")
    assert "nobody foresaw it" not in run.state.reason, "what an error says is for the log alone"
    assert (turns.undone.left, thinker.asked) == ({}, 3)


async def test_who_breaks_over_what_was_committed_breaks_no_run() -> None:
    thinker = Thinks(breaks=False)
    async with stored(queued()) as store:
        parts: Any = (store, Quiet(), thinker, FakeClock(), lambda _: 1 / 0, Brake())
        transition = await Turns(*parts).take(RUN_ID, RunStarted(at=NOON, skills=()))
    assert transition.state is not None
    assert (transition.state.status, thinker.asked) == (Status.RUNNING, 1)


@pytest.mark.parametrize("ends_in_time", [True, False])
async def test_a_process_that_is_drained_ends_with_its_last_model_call_or_gives_it_up(ends_in_time: bool) -> None:
    left, ended, calls = asyncio.Event(), asyncio.Event(), [1]

    async def leave(_: float) -> None:
        await left.wait()

    async with asyncio.TaskGroup() as group:
        draining = Draining(
            brake=Brake(), background=Background(group), leave=leave, thinking=lambda: calls[0], end=ended.set
        )
        draining.begin(9.0 if ends_in_time else 0.1, by="somebody")
        if ends_in_time:
            left.set()
            await asyncio.sleep(0.3)
            assert not ended.is_set()
            calls[0] = 0
        await until(ended.is_set)
