"""Turns whose effects or observers fail, a process that is drained, and queued turns that any agent takes."""

import asyncio
import json
from contextlib import nullcontext
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock, call

import pytest

from agent_service.background import Background
from agent_service.cluster import Cluster, due_turn
from agent_service.core.events import CancelRequested, Event, ModelUnavailable, RunStarted, TurnBroke
from agent_service.core.state import RunState
from agent_service.core.waiting import OpenCall, Status
from agent_service.kill_switch import Draining, KillSwitch
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, turn_id
from agent_service.run.journal import Commit
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Turns
from agent_service.store.runs import RunStore
from groundwork.service.errors import Broken, TryAgain
from schemas import subjects
from schemas.envelope import MSG_ID
from tests.core.cues import RUN_ID, queued
from tests.core.cues import started as begins
from tests.kit.fakes import FakeClock
from tests.kit.runs import NOON, accepted, run_id, started
from tests.kit.waiting import until
from tests.shell.stored import stored, thinks


def turns_of(store: RunStore, model_caller: Any, *observers: Any) -> Turns:
    """Turns that publish nothing."""
    publisher: Any = SimpleNamespace(kill_switch=KillSwitch(), publish=AsyncMock())
    return Turns(store, publisher, model_caller, FakeClock(), [*observers])


async def test_effects_that_break_are_tried_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    model_caller, full = thinks(RuntimeError("an unforeseen fault")), [TryAgain("the disk is full")]
    async with stored(queued()) as store:
        commits = store.commit

        async def commit(commit: Commit) -> None:
            if isinstance(commit.event, TurnBroke) and full:
                raise full.pop()
            await commits(commit)

        monkeypatch.setattr(store, "commit", commit)
        turns = turns_of(store, model_caller)
        await turns.take(RUN_ID, RunStarted(at=NOON, skills=()))
        for _ in range(3):
            async with asyncio.TaskGroup() as group:
                intake: Any = SimpleNamespace(turns=turns)
                Recovery(intake, cast("Any", None), Background(group), 1).try_again()
        run = await store.load(RUN_ID)
    assert run
    assert (run.state.status, run.state.ending_class) == (Status.FAILED, "internal")
    assert "an unforeseen fault" not in str(run.state.reason), "what an error says is for the log alone"
    assert (turns.outbox.pending, model_caller.think.await_count) == ({}, 4)


async def test_what_is_resumed_within_a_resumed_turn_needs_no_slot_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(10), stored(queued() >> begins()) as store, asyncio.TaskGroup() as group:
        turns, resumed = turns_of(store, thinks()), list[str]()
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
    model_caller = thinks()
    async with stored(queued()) as store:
        turns = turns_of(store, model_caller, lambda _: 1 / 0)
        transition = await turns.take(RUN_ID, RunStarted(at=NOON, skills=()))
    assert transition.state is not None
    assert (transition.state.status, model_caller.think.await_count) == (Status.RUNNING, 1)


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


def cluster_of(turns: dict[str, Any], store: dict[str, Any], **parts: Any) -> Cluster:
    """The queue of an agent and a store that have these parts alone."""
    dispatches = Mock(side_effect=AssertionError("a queue dispatches nothing"))
    about: Any = SimpleNamespace(kill_switch=KillSwitch(), observers=[], **turns)
    agent: Any = SimpleNamespace(turns=about, halt_control=SimpleNamespace(adopt=None), **parts)
    return Cluster(agent, cast("Any", SimpleNamespace(mark_dispatched=dispatches, **store)))


async def fired(turn: str, state: RunState, at: datetime) -> int:
    """Takes up a turn from the queue at that instant; returns how often the run's timer fires."""
    body = json.dumps({"run_id": RUN}).encode()
    message = InboundMessage(subject=subjects.TURN, body=body, place="7", headers={MSG_ID: turn})
    turns, fire = {"clock": FakeClock(at), "current": AsyncMock(return_value=state)}, AsyncMock()
    store = {"entries_under": AsyncMock(return_value=set())}
    CURRENT_MESSAGE.set(message)
    await cluster_of(turns, store, recovery=SimpleNamespace(fire=fire)).receive(message)
    return fire.await_count


async def test_a_turn_that_one_agents_clock_calls_due_is_kept_until_it_is() -> None:
    begun = started(accepted(1)).state
    assert begun.due_at
    turn, early = due_turn(RUN, begun.version), begun.due_at - timedelta(seconds=40)
    with pytest.raises(TryAgain) as put_off:
        await fired(turn, begun, early)
    assert put_off.value.delay_s == pytest.approx(40)
    assert await fired(turn, begun, begun.due_at) == 1
    assert await fired(due_turn(RUN, 1), begun, early) == 0, "it has moved on"


async def test_what_is_due_or_missed_is_queued_once_and_not_forgotten_while_it_cannot_be() -> None:
    full, missed = TryAgain("the stream is full"), {turn_id(run_id(2), 1): (run_id(2), 1)}
    put = AsyncMock(side_effect=[full, None, full, None])
    store = {"version": {RUN: 4}.get, "overdue_turns": lambda: [*missed.values()], "turn_seen": missed.pop}
    recovery, link = SimpleNamespace(due=AsyncMock(return_value=[RUN])), SimpleNamespace(store=put)
    cluster = cluster_of({"clock": FakeClock()}, store, recovery=recovery, ground=SimpleNamespace(link=link))
    for outcome in (pytest.raises(TryAgain), pytest.raises(TryAgain), nullcontext(), nullcontext()):
        with outcome:
            await cluster.look()
    turns = [(RUN, due_turn(RUN, 4))] * 2 + [(run_id(2), turn_id(run_id(2), 1))] * 2
    assert put.await_args_list == [
        call(subjects.TURN, json.dumps({"run_id": run}).encode(), {MSG_ID: name}) for run, name in turns
    ], "the first of each was refused"
    assert not missed
