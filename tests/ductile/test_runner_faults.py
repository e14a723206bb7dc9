"""Calls carried into a Ductile in which things go wrong that only a fake can be told to do."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from ductile_gateway.calls.call import Unknown
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
from tests.ductile.runner_house import a_call, gateway, outcome
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


async def test_an_event_ends_the_wait_for_a_job(fake: FakeDuctile, tmp_path: Path) -> None:
    release = threading.Event()
    fake.on("probe", "look", held(release))
    async with gateway(fake, tmp_path, pace=ONLY_EVENTS) as runner:
        running = asyncio.create_task(runner.run(a_call("look")))
        await until(lambda: fake.executions)
        release.set()
        async with asyncio.timeout(5):
            assert outcome(await running).status == "ok"


async def test_a_token_that_may_not_hear_events_is_no_hindrance(
    fake: FakeDuctile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = fake.tokens["reader"]
    with caplog.at_level(logging.WARNING):
        async with gateway(fake, tmp_path, token=reader) as runner:
            assert outcome(await runner.run(a_call("look"))).status == "ok"
            await until(lambda: "jobs are looked at without Ductile's events" in caplog.messages)
    assert reader not in caplog.text
