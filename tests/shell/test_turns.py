"""Turns whose effects or observers fail, and a process that is drained."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_service.background import Background
from agent_service.core.events import RunStarted, Transition, TurnBroke
from agent_service.core.waiting import Status
from agent_service.kill_switch import Draining, KillSwitch
from agent_service.run.journal import Commit
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Turns
from groundwork.service.errors import Broken, TryAgain
from tests.core.cues import RUN_ID, queued
from tests.core.script import NOON
from tests.kit.fakes import FakeClock
from tests.kit.waiting import until
from tests.shell.stored import stored


class Quiet:
    kill_switch = KillSwitch()

    async def publish(self, *_: object, **__: object) -> None:
        return


class Thinks:
    """Makes no model call, or fails."""

    def __init__(self, breaks: bool) -> None:
        self.asked, self._breaks = 0, breaks

    def reserve(self, decided: Transition) -> Transition:
        return decided

    async def think(self, *_: object) -> None:
        self.asked += 1
        if self._breaks:
            raise RuntimeError("nobody foresaw it")

    def abandon_all(self, *_: object) -> None:
        return


async def test_effects_that_break_are_tried_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    model_caller, full = Thinks(breaks=True), [TryAgain("the disk is full")]
    async with stored(queued()) as store:
        commits = store.commit

        async def commit(commit: Commit) -> None:
            if isinstance(commit.event, TurnBroke) and full:
                raise full.pop()
            await commits(commit)

        monkeypatch.setattr(store, "commit", commit)
        parts: Any = (store, Quiet(), model_caller, FakeClock(), [])
        turns = Turns(*parts)
        await turns.take(RUN_ID, RunStarted(at=NOON, skills=()))
        for _ in range(3):
            async with asyncio.TaskGroup() as group:
                intake: Any = SimpleNamespace(turns=turns)
                Recovery(intake, cast("Any", None), Background(group), 1).try_again()
        run = await store.load(RUN_ID)
    assert run
    assert (run.state.status, run.state.ending_class) == (Status.FAILED, "internal")
    assert "nobody foresaw it" not in str(run.state.reason), "what an error says is for the log alone"
    assert (turns.outbox.pending, model_caller.asked) == ({}, 4)


async def test_a_broken_disk_ends_the_process_also_when_a_background_turn_meets_it() -> None:
    async def timer() -> None:
        raise Broken("the disk failed")

    with pytest.RaisesGroup(Broken):
        async with asyncio.TaskGroup() as group:
            Background(group).start(timer())


async def test_who_breaks_over_what_was_committed_breaks_no_run() -> None:
    model_caller = Thinks(breaks=False)
    async with stored(queued()) as store:
        parts: Any = (store, Quiet(), model_caller, FakeClock(), [lambda _: 1 / 0])
        transition = await Turns(*parts).take(RUN_ID, RunStarted(at=NOON, skills=()))
    assert transition.state is not None
    assert (transition.state.status, model_caller.asked) == (Status.RUNNING, 1)


async def test_a_process_that_is_drained_gives_up_a_model_call_that_takes_too_long() -> None:
    ended = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        Draining(
            kill_switch=KillSwitch(),
            background=Background(group),
            leave=asyncio.sleep,
            thinking=lambda: 1,
            end=ended.set,
        ).begin(0.1, by="somebody")
        await until(ended.is_set)
