"""Turns beyond the straight way: what cannot be taken up, what breaks or is away, and calls that others end."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from agent_service.background import Background
from agent_service.core.events import CancelRequested, ModelReplied, SignalReceived, WakeAccepted
from agent_service.core.limits import LimitRefused
from agent_service.core.waiting import Status
from agent_service.errors import WakeConflict
from agent_service.run.arrival import Arrival, Unreadable
from agent_service.run.invalidation import Overtaken
from agent_service.run.journal import Commit
from agent_service.run.moments import Elsewhere
from agent_service.run.outbox import Undone
from agent_service.run.recovery import Starter
from groundwork.service.errors import TryAgain
from schemas import keys, subjects
from schemas.envelope import RETRIED_BY
from schemas.events import AgenticStart, Cancel, Constraints, Signal
from tests.kit.fakes import MemoryStore
from tests.kit.runs import run_id
from tests.kit.waiting import until
from tests.shell.world import FRAMED, REQUEST, RESERVE, USAGE, Mind, World, act

# What is taken up


async def send(world: World, subject: str, headers: dict[str, str] | None = None, **payload: Any) -> None:
    body = json.dumps(payload).encode()
    await world.intake.receive(Arrival(subject=subject, body=body, place=str(payload), headers=headers or {}))


@pytest.mark.parametrize(
    ("subject", "body", "reason"),
    [
        (subjects.START, b"not json", "not a valid agentic.start"),
        (subjects.START, b'{"type":"agentic.start","payload":{"goal":"  "}}', "must not be blank"),
        (subjects.START, b'{"type":"agentic.cancel","payload":{"goal":"x"}}', "came on subject agentic.start"),
        (
            subjects.START,
            b'{"type":"agentic.start","payload":{"goal":"x","constraints":{"max_steps":21}}}',
            "at most 20",
        ),
        (subjects.START, b'{"type":"agentic.start","payload":{"goal":"x","context":{"max_steps":0}}}', "whole number"),
        ("agentic.unknown", b"{}", "carries nothing"),
        (subjects.TOOL_RESULT, b'{"type":"agentic.tool_result","payload":{"run_id":"a b"}}', "run_id"),
    ],
)
async def test_a_message_that_cannot_be_taken_up_says_why_and_stores_nothing(
    subject: str, body: bytes, reason: str
) -> None:
    world = World()
    with pytest.raises(Unreadable, match=reason):
        await world.intake.receive(Arrival(subject=subject, body=body, place="1"))
    assert list(await world.store.runs(limit=10)) == []


async def test_a_wake_id_is_one_run_also_after_its_deadline_and_a_conflict_for_another_goal() -> None:
    world = World()
    start = AgenticStart(goal="a", constraints=Constraints(deadline_at=world.clock.now() + timedelta(seconds=10)))
    first, _ = await world.intake.wake("w", start, known=False, by="test")
    assert await world.intake.wake("w", start, known=False, by="test") == (first, None)
    world.clock.advance(11)
    assert await world.intake.wake("w", start, known=True, by="test") == (first, None)
    with pytest.raises(LimitRefused, match="has passed"):
        await world.intake.wake("other", start, known=False, by="test")
    with pytest.raises(WakeConflict, match=first):
        await world.intake.wake("w", AgenticStart(goal="b"), known=True, by="test")


async def test_messages_are_from_the_bus_and_what_they_say_of_who_sent_them_is_quoted() -> None:
    world = World()
    await send(world, subjects.START, goal="append once", by="shop")
    about: Any = {"run_id": run_id(1), "by": "ann"}
    await send(world, subjects.SIGNAL, **about, signal_id="s", kind="message", message="hurry")
    await send(world, subjects.CANCEL, run_id=run_id(1))
    await send(world, subjects.START, {RETRIED_BY: "ann@desk"}, goal="append twice")
    entries = [*await world.store.entries(run_id(1)), *await world.store.entries(run_id(2))]
    events = [entry.decoded() for entry in entries]
    known = [event.by for event in events if isinstance(event, WakeAccepted | SignalReceived | CancelRequested)]
    assert known == ['bus, says "shop"', 'bus, says "ann"', "bus", 'bus, sent again by "ann@desk"']


async def test_a_start_that_cannot_begin_for_want_of_tools_is_accepted_and_begins_once_there_are() -> None:
    world = World()
    world.offer.away = True
    world.start()
    await world.intake.receive(world.arrival(0))
    assert (await world.state()).status is Status.QUEUED
    world.offer.away = False
    async with asyncio.TaskGroup() as group:
        starter = Starter(world.intake, world.store, Background(group), world.brake, slots=1)
        running = group.create_task(starter.run())
        await until(lambda: bool(world.bus.events(REQUEST)))
        running.cancel()


# What breaks, or is away


@pytest.mark.parametrize("event", ["RunStarted", "ModelReplied", "ToolReturned"])
async def test_a_run_over_whose_event_the_agent_breaks_fails_and_says_so(event: str) -> None:
    world = World()
    world.faulty.breaks_over = event
    world.start()
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.FAILED, "internal")
    assert state.reason.startswith(f"a fault of the agent (ZeroDivisionError) over an event of kind {event}: ")
    assert [failed["class"] for failed in world.bus.events(subjects.FAILED)] == ["internal"]


async def test_effects_that_break_are_tried_again_and_not_for_ever() -> None:
    world = World()
    world.mind.outage = RuntimeError("nobody foresaw it")
    world.start()
    await world.until_quiet()
    assert (await world.state()).status is Status.RUNNING
    for _ in range(2):
        await world.try_again()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.FAILED, "internal")
    assert "nobody foresaw it" not in state.reason, "what an error says is for the log alone"
    assert (world.turns.undone.left, world.mind.calls.total()) == ({}, 3)


async def test_a_signal_over_which_the_agent_breaks_is_the_callers_to_hear_and_the_run_goes_on() -> None:
    world = World()
    world.faulty.breaks_over = "SignalReceived"
    run, _ = await world.intake.wake("w", AgenticStart(goal="append"), known=False, by="test")
    with pytest.raises(ZeroDivisionError):
        await world.intake.signal(Signal(run_id=run, signal_id="s", kind="message", message="hello"), by="test")
    assert not (await world.state()).final


async def test_whoever_breaks_over_what_was_committed_breaks_no_run() -> None:
    world = World(on_commit=lambda moment: 1 / (moment.entry.seq % 2))
    world.start()
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE


async def test_a_reply_that_the_store_refuses_for_now_is_kept_and_not_paid_again() -> None:
    world = World()
    world.faulty.refusals = 3
    world.start()
    await world.until_quiet()
    assert ((await world.state()).status, world.faulty.refusals) == (Status.DONE, 0)
    assert set(world.mind.calls.values()) == {1}


@pytest.mark.parametrize("argument", [float("nan"), "\ud800", "a\0b", "x" * 200_000])
async def test_a_plan_that_cannot_be_stored_is_told_to_the_model_and_never_sent(argument: object) -> None:
    world = World(Mind(chooses=lambda _: act(n=argument)))
    world.start()
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.ESCALATED, "invalid_decision")
    assert world.gateway.executed == {}


# Calls that cost something


async def test_crashes_without_end_can_not_spend_more_than_the_limit() -> None:
    world = World(Mind(RESERVE))
    world.faults.strike_each("during frame", 1000)
    world.start(max_tokens=2000)
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.ESCALATED, "budget_tokens")
    assert (state.spent.lost_tokens, world.mind.calls.total()) == (1400, 2)


async def test_a_cancel_between_the_halves_of_a_call_keeps_it_from_being_made() -> None:
    world = World(Mind(RESERVE), slots=1)
    world.mind.may_answer.clear()
    for name in "ab":
        world.start(name=name)
    turns = [asyncio.ensure_future(world.receive(number)) for number in (0, 1)]
    await asyncio.wait_for(world.mind.asked.wait(), 5)
    [(thinking, _)] = world.mind.calls
    waiting = next(run_id(number) for number in (1, 2) if run_id(number) != thinking)

    async def is_set_aside() -> bool:
        return (await world.store.entries(waiting))[-1].kind == "CallReserved"

    await until(is_set_aside)
    await world.turns.take(waiting, CancelRequested(at=world.clock.now(), reason="enough"))
    world.mind.may_answer.set()
    await asyncio.wait_for(asyncio.gather(*turns), 5)
    run = await world.store.load(waiting)
    assert run
    assert (run.state.status, run.state.spent.calls, run.state.spent.lost_calls) == (Status.CANCELLED, 0, 1)
    assert (waiting, 1) not in world.mind.calls


# Two agents of one store


class Lossy(MemoryStore):
    """Its commits may be stored without a word; it may say that another has taken up a call."""

    loses_word = taken_up = False

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        if self.loses_word:
            self.loses_word = False
            raise TryAgain("the log does not answer", delay_s=0)

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        del run_id, call, since
        return self.taken_up


async def hear(world: World, group: asyncio.TaskGroup, *, by: str) -> None:
    """The agent `a` hears of the run's newest entry."""
    background, state = Background(group), await world.state()
    entry = (await world.store.entries(state.run_id))[-1]
    overtaken = Overtaken("a", world.turns, world.thinker, world.faulty, world.recovery(background), background)
    overtaken.hear(Elsewhere(entry=entry, position=1, by=by, status=state.status, caller="", paid_usd=0.0, opened=0))


@pytest.mark.parametrize("does", ["cancels", "takes it up", "has its reply"])
@pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
async def test_a_model_call_that_another_ends_takes_up_or_has_made_ends_before_it_is_answered(
    does: str, reserve: Any
) -> None:
    store = Lossy()
    one = World(Mind(reserve), store=store)
    other = World(beside=one)
    one.mind.may_answer.clear()
    one.start()
    async with asyncio.TaskGroup() as group:
        thinking = group.create_task(one.take(subjects.START))
        await one.mind.asked.wait()
        if does == "cancels":
            await other.intake.follow(await other.intake.cancel(Cancel(run_id=run_id(1)), by="ann"))
        if does == "has its reply":
            reply = ModelReplied(at=one.clock.now(), call=1, model="mind", usage=USAGE, decision=FRAMED)
            await other.turns.commit(run_id(1), reply)
        store.taken_up = does == "takes it up"
        await hear(one, group, by="b")
        await asyncio.wait_for(thinking, 5)
    assert (one.mind.calls.total(), other.mind.calls.total()) == (1, 0)
    assert (await one.kinds()).count("ModelReplied") == (does == "has its reply")
    assert (await one.state()).final == (does == "cancels")


async def test_a_result_that_a_remembered_state_does_not_wait_for_is_taken_where_the_run_really_stands() -> None:
    one = World()
    other = World(beside=one)
    one.start()
    await one.take(subjects.START)
    for agent in (other, one):
        one.gateway.handle(next(each for each in one.bus.unacknowledged if each.subject == REQUEST))
        one.bus.unacknowledged = [each for each in one.bus.unacknowledged if each.subject != REQUEST]
        await agent.take(subjects.TOOL_RESULT)
    assert (await one.state()).has_finished(2)


async def test_an_entry_that_was_stored_without_a_word_is_carried_out_by_who_has_committed_it() -> None:
    store = Lossy()
    world = World(store=store)
    await world.intake.wake("w", AgenticStart(goal="append"), known=False, by="ann")
    store.loses_word = True
    with pytest.raises(TryAgain):
        await world.intake.begin(run_id(1))
    assert (await world.kinds())[-1] == "RunStarted"
    async with asyncio.TaskGroup() as group:
        await hear(world, group, by="a")
    assert len(world.bus.events(REQUEST)) == 1
    assert keys.start("w") not in world.bus.published


def test_an_older_entry_that_is_found_later_counts_before_a_newer_one() -> None:
    told: list[tuple[int, int]] = []
    undone = Undone(lambda _, seq, *, since: told.append((since, seq)))
    undone.begin("run", (5,))
    undone.found("run", (3, 5))
    assert undone.take("run") == {3}
    undone.done("run", (5,))
    assert told == []
    undone.done("run", (3,))
    assert told == [(3, 5)]
