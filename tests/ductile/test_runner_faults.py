"""Calls carried into a Ductile in which things go wrong that only a fake can be told to do."""

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ductile_gateway.calls.call import ToolOutcome, Unknown
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.watch import Pace
from groundwork.service.errors import TryAgain
from tests.ductile.fake import (
    Behaviour,
    FakeDuctile,
    answers,
    dies,
    fails,
    held,
    in_turn,
    skipped,
    succeeds_but_routing_fails,
    times_out,
)
from tests.ductile.runner_house import QUICK, a_call, gateway, outcome
from tests.kit.waiting import until

ONLY_EVENTS = Pace(first_s=15.0, most_s=15.0)
"""Who looks that seldom ends in time only when events tell of the end."""


@pytest.mark.parametrize(
    ("behaviour", "ending", "executions"),
    [
        (in_turn(fails(), fails(), answers("at last")), "at last", 3),
        (succeeds_but_routing_fails(), "done\n[the tool has succeeded, but what follows", 1),
        (skipped(), "Skipped by Ductile: if: false", 1),
        (dies(), "unknown", 1),
        (times_out(), "timeout", 4),
    ],
)
async def test_each_end_that_ductile_has_for_a_job_ends_the_call(
    fake: FakeDuctile, tmp_path: Path, behaviour: Behaviour, ending: str, executions: int
) -> None:
    fake.on("probe", "note", behaviour)
    async with gateway(fake, tmp_path) as runner:
        found = await runner.run(a_call())
    told = "unknown" if isinstance(found, Unknown) else outcome(found).error_class or outcome(found).text
    assert (told.startswith(ending), len(fake.executions)) == (True, executions), found


async def test_a_pruned_job_is_told_by_the_log(fake: FakeDuctile, tmp_path: Path) -> None:
    call = a_call(text="x")
    async with gateway(fake, tmp_path) as runner:
        first = await runner.run(call)
        fake.prune(fake.executions[0].job_id)
        assert await runner.resume(call) == first


@pytest.mark.parametrize("fault", ["lost_202", "unavailable_after_enqueueing"])
async def test_a_call_that_shows_its_id_is_found_after_its_answer_was_lost(
    fake: FakeDuctile, tmp_path: Path, fault: str
) -> None:
    setattr(fake.faults, fault, 1)
    call = a_call()
    async with gateway(fake, tmp_path) as runner:
        assert outcome(await runner.run(call)).status == "ok"
        assert outcome(await runner.resume(call)).status == "ok"
    assert len(fake.executions) == 1


async def test_a_call_whose_answer_was_lost_is_found_when_its_job_ends_later(
    fake: FakeDuctile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake.faults.lost_202 = 1
    release = threading.Event()
    call = a_call()
    fake.on("probe", "note", held(release, answers("done", seen=call.key)))
    caplog.set_level(logging.INFO, logger="httpx2")
    async with gateway(fake, tmp_path, pace=replace(QUICK, settle_s=0)) as runner:
        running = asyncio.create_task(runner.run(call))
        await until(lambda: sum("/jobs?" in message for message in caplog.messages) >= 2)
        release.set()
        assert outcome(await running).output == {"seen": call.key}


async def test_a_call_that_shows_nothing_is_unknown_after_its_answer_was_lost(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    fake.faults.lost_202 = 1
    fake.on("probe", "note", answers("done"))
    async with gateway(fake, tmp_path) as runner:
        assert isinstance(await runner.run(a_call()), Unknown)
    assert len(fake.executions) == 1


async def test_a_lost_call_does_not_wait_for_jobs_that_began_later(
    fake: FakeDuctile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake.faults.lost_202 = 1
    release, never = threading.Event(), threading.Event()
    fake.on("probe", "note", in_turn(held(release), held(never)))
    caplog.set_level(logging.INFO, logger="httpx2")
    async with gateway(fake, tmp_path, pace=replace(QUICK, settle_s=0)) as runner:
        lost = asyncio.create_task(runner.run(a_call()))
        await until(lambda: any("/jobs?" in message for message in caplog.messages))
        later = asyncio.create_task(runner.run(a_call()))
        await until(lambda: len(fake.executions) == 2)
        release.set()
        async with asyncio.timeout(5):
            assert isinstance(await lost, Unknown)
        never.set()
        await later


async def test_two_jobs_that_show_the_same_id_are_not_told_apart(fake: FakeDuctile, tmp_path: Path) -> None:
    call = a_call()
    fake.on("probe", "note", answers("done", seen=call.key))
    async with gateway(fake, tmp_path) as runner:
        await runner.run(a_call())
        fake.faults.lost_202 = 1
        assert isinstance(await runner.run(call), Unknown)


@pytest.mark.parametrize("why", ["setting", "closed", "pipeline"])
async def test_a_call_without_an_id_is_unknown_after_its_answer_was_lost(
    fake: FakeDuctile, tmp_path: Path, why: str
) -> None:
    fake.faults.lost_202 = 1
    closed = frozenset({("probe", "note")} if why == "closed" else ())
    tools = DuctileTools(pipelines=frozenset({"probe-asked"}), closed=closed)
    call = a_call("handle", plugin="probe-asked") if why == "pipeline" else a_call()
    async with gateway(fake, tmp_path, tools=tools, send_call_id=why != "setting") as runner:
        assert isinstance(await runner.run(call), Unknown)


async def test_a_half_open_connection_is_given_up_and_the_call_is_unknown(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.faults.half_open = True
    pace = Pace(first_s=0.02, most_s=0.1, patience_s=0.5, settle_s=0.1)
    call = replace(a_call("look", within_s=1), may_repeat=True)
    async with gateway(fake, tmp_path, pace=pace, request_timeout_s=0.2, events=False) as runner:
        assert isinstance(await runner.run(call), Unknown)


async def test_a_plugin_that_cannot_be_reached_is_left_alone_for_a_while(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.kill()
    async with gateway(fake, tmp_path, breaker_failures=2, breaker_open_s=60, events=False) as runner:
        for _ in range(2):
            with pytest.raises(TryAgain):
                await runner.run(a_call())
        fake.start()
        with pytest.raises(TryAgain, match="left alone") as caught:
            await runner.run(a_call())
        assert 50 < caught.value.delay_s <= 60
        with pytest.raises(TryAgain):
            await runner.run(a_call())
    assert not fake.executions


async def test_no_more_calls_are_in_flight_than_may_be(fake: FakeDuctile, tmp_path: Path) -> None:
    release = threading.Event()
    fake.on("probe", "look", held(release))
    async with gateway(fake, tmp_path, in_flight=2) as runner:
        running = [asyncio.create_task(runner.run(a_call("look"))) for _ in range(4)]
        await until(lambda: len(fake.executions) == 2)
        with pytest.raises(TryAgain, match="as many calls"):
            await runner.run(a_call("look", within_s=0.2))
        assert len(fake.executions) == 2
        release.set()
        await asyncio.gather(*running)
    assert len(fake.executions) == 4


async def test_calls_that_are_resumed_fill_places_and_wait_for_none(
    fake: FakeDuctile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="httpx2")
    release = threading.Event()
    fake.on("probe", "look", held(release))
    calls = [a_call("look") for _ in range(3)]
    async with gateway(fake, tmp_path) as runner:
        begun = [asyncio.create_task(runner.run(call)) for call in calls]
        await until(lambda: looked_at(caplog) == 3)
        for one in begun:
            one.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
    caplog.clear()
    async with gateway(fake, tmp_path, in_flight=2) as runner:
        resumed = [asyncio.create_task(runner.resume(call)) for call in calls]
        await until(lambda: looked_at(caplog) == 3)
        with pytest.raises(TryAgain, match="as many calls"):
            await runner.run(a_call("look", within_s=0.3))
        assert len(fake.executions) == 3
        release.set()
        assert [outcome(await one).status for one in resumed] == ["ok"] * 3
        assert outcome(await runner.run(a_call("look"))).status == "ok"


def looked_at(caplog: pytest.LogCaptureFixture) -> int:
    """How many jobs have been asked after."""
    return len({message for message in caplog.messages if "/job/" in message})


async def test_an_event_ends_the_wait_for_a_job(fake: FakeDuctile, tmp_path: Path) -> None:
    release = threading.Event()
    fake.on("probe", "look", held(release))
    async with gateway(fake, tmp_path, pace=ONLY_EVENTS) as runner:
        running = asyncio.create_task(runner.run(a_call("look")))
        await until(lambda: fake.executions)
        release.set()
        async with asyncio.timeout(5):
            assert outcome(await running).status == "ok"


@pytest.mark.parametrize("cut", ["cut", "restart"])
async def test_events_are_heard_again_after_the_stream_ended(fake: FakeDuctile, tmp_path: Path, cut: str) -> None:
    release = threading.Event()
    async with gateway(fake, tmp_path, pace=ONLY_EVENTS) as runner:
        await runner.run(a_call("look", within_s=10))
        await asyncio.to_thread(fake.cut_streams if cut == "cut" else fake.restart)
        fake.on("probe", "look", held(release))
        running = asyncio.create_task(runner.run(a_call("look")))
        await until(lambda: len(fake.executions) == 2)
        release.set()
        async with asyncio.timeout(5):
            assert outcome(await running).status == "ok"


async def test_without_events_jobs_are_looked_at_all_the_same(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.faults.sse_silent = True
    fake.on("probe", "note", in_turn(fails(), answers()))
    async with gateway(fake, tmp_path) as runner:
        assert outcome(await runner.run(a_call())).status == "ok"


async def test_a_token_that_may_not_hear_events_is_no_hindrance(
    fake: FakeDuctile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = fake.tokens["reader"]
    with caplog.at_level(logging.WARNING):
        async with gateway(fake, tmp_path, token=reader) as runner:
            assert outcome(await runner.run(a_call("look"))).status == "ok"
            await until(lambda: "jobs are looked at without Ductile's events" in caplog.messages)
    assert reader not in caplog.text


async def test_a_token_that_may_not_write_is_a_matter_of_configuration(fake: FakeDuctile, tmp_path: Path) -> None:
    async with gateway(fake, tmp_path, token=fake.tokens["reader"]) as runner:
        found: ToolOutcome = outcome(await runner.run(a_call("note")))
    assert (found.error_class, found.retryable) == ("configuration", False)
    assert "insufficient scope" in (found.message or "")


async def test_a_flood_of_events_delays_nobody(fake: FakeDuctile, tmp_path: Path) -> None:
    async with gateway(fake, tmp_path) as runner:
        for tick in range(500):
            fake.publish("scheduler.tick", {"n": tick})
        assert outcome(await runner.run(a_call())).status == "ok"
