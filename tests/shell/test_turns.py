"""Turns whose effects or observers fail, a process that is drained, and queued turns that any agent takes."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_service.background import Background
from agent_service.cluster import Cluster, due_turn
from agent_service.core.events import CancelRequested, Event, ModelUnavailable, RunStarted, Transition, TurnBroke
from agent_service.core.state import RunState
from agent_service.core.waiting import OpenCall, Status
from agent_service.kill_switch import Draining, KillSwitch
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, turn_id
from agent_service.run.journal import Commit
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Turns
from groundwork.service.errors import Broken, TryAgain
from schemas import subjects
from schemas.envelope import MSG_ID
from tests.core.cues import RUN_ID, queued
from tests.core.cues import started as begins
from tests.kit.fakes import FakeClock
from tests.kit.runs import NOON, accepted, run_id, started
from tests.kit.waiting import until
from tests.shell.stored import stored


class Quiet:
    kill_switch = KillSwitch()

    async def publish(self, *_: object, **__: object) -> None:
        return


class Thinks:
    """Makes no model call, or fails."""

    limits: Any = SimpleNamespace(quotas=None)

    def __init__(self, breaks: bool) -> None:
        self.asked, self._breaks = 0, breaks

    def reserve(self, decided: Transition) -> Transition:
        return decided

    async def think(self, *_: object) -> None:
        self.asked += 1
        if self._breaks:
            raise RuntimeError("nobody foresaw it")

    def abandon(self, *_: object) -> None:
        return

    abandon_all = abandon


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


async def test_what_is_resumed_within_a_resumed_turn_needs_no_slot_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(10), stored(queued() >> begins()) as store, asyncio.TaskGroup() as group:
        parts: Any = (store, Quiet(), Thinks(breaks=False), FakeClock(), [])
        turns, resumed = Turns(*parts), list[str]()
        recovery = Recovery(cast("Any", SimpleNamespace(turns=turns)), cast("Any", None), Background(group), 1)

        async def think(_: RunState, open_call: OpenCall) -> Event:
            await turns.commit(RUN_ID, CancelRequested(at=NOON, reason="its reply comes too late"))
            return ModelUnavailable(at=NOON, call=open_call.call, remedy="pause", error_class="", message="")

        async def again(run_id: str) -> None:
            await recovery.resume(run_id, {3})
            resumed.append(run_id)

        monkeypatch.setattr(turns.model_caller, "think", think)
        turns.again = again
        turns.outbox.found(RUN_ID, {2})
        recovery.try_again()
    assert resumed == [RUN_ID]


async def test_a_broken_disk_ends_the_process_also_when_a_background_turn_meets_it() -> None:
    async def timer() -> None:
        raise Broken("the disk failed")

    with pytest.RaisesGroup(Broken):
        async with asyncio.TaskGroup() as group:
            Background(group).start(timer)


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
