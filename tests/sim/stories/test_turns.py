"""Unusual turns: invalid messages, failures, full disks, and model calls that others end."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count, pairwise, takewhile
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from agent_service.core.events import CancelRequested, SignalReceived, WakeAccepted
from agent_service.models.prompts.prompt import as_text
from agent_service.run.journal import Entry, replay
from agent_service.store.database import load_queries
from agent_service.store.runs import RunStore
from agent_service.views.journal import made_call, question_of
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import Values
from schemas import subjects
from tests.sim.courses import COURSES
from tests.sim.machines.disk import SimFile
from tests.sim.servers.streams import head_of
from tests.sim.world import World, begun

PLAIN = COURSES["plain run"]
(GOAL,) = PLAIN.goals


async def journal(world: World) -> Sequence[Entry]:
    folder = Path(mkdtemp(dir=world.services.folder))
    (folder / "runs.db").write_bytes(world.services.disks["agent"].databases["runs.db"].serialize())
    async with RunStore.open(folder) as store:
        (line,) = await store.runs(limit=2)
        return await store.entries(line.run_id)


UNREADABLE = {
    b"not json": "not a valid agentic.start: body: is not JSON (line 1 column 2)",
    b'{"payload":': "body: is not JSON (line 1 column 11)",
    b'{"type":"agentic.start","payload":{"goal":"  "}}': "must not be blank",
    b'{"type":"agentic.cancel","payload":{"goal":"x"}}': "came on subject agentic.start",
    b'{"type":"agentic.start","payload":{"goal":"x","constraints":{"max_steps":21}}}': "at most 20",
    b'{"type":"agentic.start","payload":{"goal":"x","context":{"max_steps":0}}}': "whole number",
    b'{"run_id":"r","signal_id":"s","kind":"message","text":"stop"}': "brings `message`",
    b'{"run_id":"r","signal_id":"s","kind":"raise_budget"}': "brings `constraints`",
}


def test_a_message_that_cannot_be_taken_up_is_rejected_with_the_reason_and_starts_no_run() -> None:
    with closing(World(PLAIN)) as world:
        for number, body in enumerate(UNREADABLE):
            subject = subjects.SIGNAL if b"signal_id" in body else subjects.START
            world.bus.jetstream.put(subject, body, head_of({"Nats-Msg-Id": str(number)}))
        world.until(lambda: len(world.record.of(subjects.REJECTED)) == len(UNREADABLE))
        told = [message.payload["reason"] for message in world.record.of(subjects.REJECTED)]
        assert [why for why in UNREADABLE.values() if not any(why in reason for reason in told)] == []
        assert world.record.of(subjects.WAKE_ACCEPTED) == []


def test_a_wake_id_is_one_run_also_after_its_deadline() -> None:
    with closing(World(PLAIN)) as world:
        wake: Any = {"goal": GOAL, "wake_id": "w", "constraints": {"deadline_at": "2026-06-01T12:00:20Z"}}
        first = world.asks("wake", **wake)
        world.passes(30)
        assert world.asks("wake", **wake) == first
        assert "has passed" in world.asks("wake", **wake | {"wake_id": "another"})["detail"]
        assert "may not begin with child:" in world.asks("wake", goal=GOAL, wake_id="child:run_1")["detail"]


def test_a_start_that_comes_again_after_its_deadline_is_the_run_that_it_began() -> None:
    with closing(World(PLAIN)) as world:
        start = {"goal": GOAL, "wake_id": "w", "constraints": {"deadline_at": "2026-06-01T12:00:20Z"}}
        world.say(subjects.START, start, "start")
        world.until(lambda: world.record.of(subjects.COMPLETED))
        world.passes(30)
        world.say(subjects.START, start, "again")
        world.say(subjects.START, start | {"wake_id": "another"}, "another")
        world.until(lambda: world.record.of(subjects.REJECTED))
        world.passes(5)
        (rejected,) = world.record.of(subjects.REJECTED)
    assert rejected.payload["dedupe_key"] == "another"


def test_messages_are_from_the_bus_and_what_they_say_of_who_sent_them_is_quoted() -> None:
    with closing(World(PLAIN)) as world:
        world.say(subjects.START, {"goal": GOAL, "by": "shop"}, "start")
        world.until(lambda: world.record.of(subjects.WAKE_ACCEPTED))
        about = {"run_id": world.first}
        said = {"signal_id": "s", "kind": "message", "message": "hurry", "by": "ann"}
        world.say(subjects.SIGNAL, about | said, "signal")
        world.say(subjects.CANCEL, about, "cancel")
        world.until(lambda: world.record.of(subjects.CANCELLED))
        events = [entry.decoded() for entry in asyncio.run(journal(world))]
    by = [event.by for event in events if isinstance(event, WakeAccepted | SignalReceived | CancelRequested)]
    assert sorted(by) == ["bus", 'bus, says "ann"', 'bus, says "shop"']


def test_a_start_waits_for_want_of_tools_and_begins_once_there_are() -> None:
    with closing(begun(replace(PLAIN, gateways=0))) as world:
        world.passes(10)
        assert world.record.paid == []
        world.services.start("gateway")
        world.until(lambda: world.record.of(subjects.COMPLETED))


# What breaks, or is full


def breaks_over(world: World, kind: str) -> None:
    def breaks(process: str, connection: sqlite3.Connection) -> None:
        newest = "SELECT kind FROM journal ORDER BY seq DESC LIMIT 2"  # a reserve may be stored with it
        if process == "agent" and (kind,) in connection.execute(newest).fetchall():
            raise ZeroDivisionError(kind)

    world.boundary.commits = breaks


@pytest.mark.parametrize("kind", ["RunStarted", "ModelReplied", "ToolReturned"])
def test_a_run_over_whose_event_the_agent_breaks_fails_and_says_so(kind: str) -> None:
    with closing(World(replace(PLAIN, ends=(subjects.FAILED,)))) as world:
        breaks_over(world, kind)
        world.play()
        (failed,) = world.record.of(subjects.FAILED)
    assert failed.payload["class"] == "internal"
    assert f"(ZeroDivisionError) over an event of kind {kind}: " in failed.payload["reason"]


def test_a_signal_over_which_the_agent_breaks_is_the_callers_to_hear_and_the_run_goes_on() -> None:
    with closing(begun(PLAIN)) as world:
        breaks_over(world, "SignalReceived")
        said = world.asks("signal", run_id=world.first, kind="message", message="hello", signal_id="s")
        assert said["status"] == 500
        world.until(lambda: world.record.of(subjects.COMPLETED))


def test_a_reply_that_a_full_disk_refuses_for_now_is_kept_and_not_paid_again() -> None:
    with closing(begun(PLAIN)) as world:
        world.until(lambda: world.record.paid)
        world.services.disks["agent"].full = True
        world.passes(3)
        world.services.disks["agent"].full = False
        world.until(lambda: world.record.of(subjects.COMPLETED))
        assert len({prompt.user for prompt in world.record.paid}) == len(world.record.paid)


def test_an_agent_goes_on_while_its_timers_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read, due = SimFile.read, load_queries()["due"]

    async def locked(file: SimFile, statement: str, values: Values = ()) -> list[Any]:
        if statement == due:
            raise TryAgain("another connection kept it locked")
        return await read(file, statement, values)

    with closing(World(PLAIN)) as world, monkeypatch.context() as meanwhile:
        meanwhile.setattr(SimFile, "read", locked)
        world.start()
        world.until(lambda: world.record.of(subjects.COMPLETED))
        assert world.services.dead == []


# Calls that cost something


def test_deaths_without_end_spend_no_more_than_the_limit() -> None:
    with closing(World(replace(COURSES["tokens"], constraints={"max_tokens": 60_000}))) as world:
        world.boundary.dies = lambda _: world.boundary.effects[-1].startswith("agent: POST")
        world.play()
        told = world.status()
    spent = told["usage"]
    assert (told["class"], world.record.paid) == ("budget_tokens", [])
    assert (spent["lost_calls"], spent["lost_tokens"] <= 60_000) == (len(world.record.deaths), True)


def test_a_cancel_between_the_halves_of_a_call_keeps_it_from_being_made() -> None:
    with closing(World(replace(COURSES["two runs"], agent={"turns": 1}))) as world:
        world.model.takes_s = 5.0
        world.start()
        world.passes(2)
        world.cancel_all()
        world.until(lambda: len(world.record.of(subjects.CANCELLED)) == 2, within_s=1)
        spent = [world.asks("status", run_id=run.run_id)["usage"] for run in world.record.of(subjects.CANCELLED)]
    assert sorted(usage["lost_calls"] for usage in spent) == [0, 1]
    assert world.record.paid == []


@pytest.mark.parametrize(("seed", "settings"), [(1, {}), (6, {}), (6, {"turns": 1})])
def test_a_model_call_of_a_run_that_any_agent_cancels_is_given_up_at_once(seed: int, settings: Any) -> None:
    """With one turn at a time, another agent than the one that calls takes the turn of the cancel."""
    with closing(World(replace(PLAIN, agents=2, agent=settings), seed)) as world:
        world.model.takes_s = 5.0
        world.start()
        world.until(lambda: any("POST" in name for name in world.boundary.effects))
        world.asks("cancel", run_id=world.first)
        world.until(lambda: world.record.of(subjects.CANCELLED), within_s=1)
        world.passes(10)
        assert world.record.paid == []


def rebuilt(world: World) -> list[tuple[str, str]]:
    """The two halves of each prompt, rebuilt from the journal."""
    changes = [*replay(asyncio.run(journal(world)))]
    made = takewhile(bool, (made_call(changes, number) for number in count(1)))
    prompts = [as_text(question_of(call, changes)) for call in made if call]
    return [("\n\n".join(prompt.system), "\n\n".join(prompt.user)) for prompt in prompts]


def test_what_calls_are_told_is_made_anew_from_the_journal_to_the_byte_and_begins_as_before_whatever_died() -> None:
    """Otherwise the provider's cache misses, and the whole prompt is paid for again."""
    course = COURSES["approval"]
    with closing(World(course)) as world:
        world.play()
        named = [each for each in enumerate(world.boundary.effects, start=1) if each[1].startswith("agent: ")]
    asked = [at for at, (_, name) in enumerate(named) if "POST" in name]
    for dies_at in (named[at + after][0] for at in asked for after in (0, 1)):
        with closing(World(course, dies_at=dies_at)) as world:
            world.play()
            paid, calls = world.record.paid, rebuilt(world)
            assert [prompt for prompt in paid if (prompt.system, prompt.user) not in calls] == []
            framed = [prompt for prompt in paid if prompt.shape == "decision" and "<framing>" in prompt.user]
            for before, now in pairwise(framed):
                assert now.system == before.system
                assert now.user.startswith(before.user.partition("<standing>")[0])
    assert len(asked) == 4


def test_a_call_that_was_put_off_is_rebuilt_as_it_was_made_last() -> None:
    with closing(World(PLAIN)) as world:
        world.scheduler.faults["model unavailable"] = 1.0
        world.start()
        world.passes(2)
        assert world.asks("signal", run_id=world.first, kind="message", message="be brief", signal_id="s")
        world.scheduler.faults.clear()
        world.until(lambda: world.record.of(subjects.COMPLETED))
        first, *_ = world.record.paid
        assert "be brief" in first.user
        assert rebuilt(world)[0] == (first.system, first.user)


def test_a_request_that_the_bus_forgot_soon_after_an_agent_s_start_is_published_again() -> None:
    with closing(begun(replace(PLAIN, agents=2))) as world:
        world.ductile.goes_away(3.0)
        world.until(lambda: world.record.requests)
        world.passes(0.5)  # the gateway has put it off
        world.bus.restart(away_s=1)
        world.bus.jetstream.streams[subjects.STREAM_REQUESTS].forget(1)
        world.until(lambda: world.record.of(subjects.COMPLETED))


def test_a_request_that_a_start_published_and_the_bus_forgot_at_once_is_published_again() -> None:
    with closing(World(PLAIN)) as world:
        world.start()
        world.until(lambda: world.record.requests)
        world.ductile.goes_away(20.0)  # the gateway holds the request
        world._kill(world.services.processes["agent"])
        world.until(lambda: len(world.services.dead) == 1)
        world.passes(0.2)  # the start has published it again, and has not looked at the streams
        world.bus.restart(away_s=1)
        world.bus.jetstream.streams[subjects.STREAM_REQUESTS].forget(1)
        world.until(lambda: world.record.of(subjects.COMPLETED))
