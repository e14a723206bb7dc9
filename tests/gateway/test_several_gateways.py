"""Several gateways of one bus: calls are shared, and none is lost or run twice, whichever of them dies, and when."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent_service.bus.gateway import statuses
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.gateway.fleet import Fleet, ending, fleet
from tests.kit.cluster import Cluster
from tests.kit.waiting import until

CALLS = 12


@pytest.fixture
async def ships(tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats) -> AsyncIterator[Fleet]:
    async with fleet(tmp_path, link, nats_server.url) as ships:
        yield ships


async def test_all_take_their_part_of_the_calls_and_each_call_is_run_once(ships: Fleet) -> None:
    with ExitStack() as living:
        for name in ("one", "two", "three"):
            living.enter_context(ships.serving(name, concurrency=CALLS))
        for name in ("one", "two", "three"):
            await ships.ready(name)
        await ships.asking(3)
        for step in range(1, CALLS + 1):
            await ships.record(step=step)
        await until(lambda: len(ships.ran()) == CALLS, within_s=30)
        said = await statuses(ships.link, within_s=10)
        parts = [len(ships.began(name)) for name in ("one", "two", "three")]
        ships.go()
        told = await ships.results(CALLS)
    assert ({ending(result) for result in told}, len(set(ships.ran())), len(ships.ran())) == ({"ok"}, CALLS, CALLS)
    assert all(parts)
    assert sum(parts) == CALLS
    assert (len({status.gateway for status in said}), {status.gateways for status in said}) == (3, {3})


async def test_a_write_on_a_machine_that_died_is_in_doubt_and_a_write_that_had_not_begun_is_made(ships: Fleet) -> None:
    with ships.serving("one", concurrency=1) as first:
        await ships.ready("one")
        await ships.record(step=1)
        await until(lambda: len(ships.ran()) == 1, within_s=30)
        await ships.record(step=2, file="later", held=False)
        with ships.serving("two", concurrency=1):
            await ships.ready("two")
            first.kill()
            first.wait()
            told = await ships.results(2)
    assert {result.step: ending(result) for result in told} == {1: "in_doubt", 2: "ok"}
    assert (len(ships.ran()), len(ships.ran("later"))) == (1, 1)


async def test_a_gateway_that_is_soon_back_ends_its_calls_itself_also_where_it_was_missed(ships: Fleet) -> None:
    with ships.serving("one") as first:
        await ships.ready("one")
        for step in range(1, 5):
            await ships.record(step=step)
        await until(lambda: len(ships.ran()) == 4, within_s=30)
        with ships.serving("two"):
            await ships.ready("two")
            first.kill()
            first.wait()
            await until(lambda: "a member is gone" in ships.gateways["two"].log.read_text(), within_s=30)
            with ships.serving("one"):
                await ships.ready("one", 2)
                ships.go()
                told = await ships.results(4)
    assert ([ending(result) for result in told], len(ships.ran())) == (["ok"] * 4, 4)


async def test_a_gateway_that_was_stopped_and_replaced_tells_late_how_its_call_ended_and_goes_on_as_a_new_member(
    ships: Fleet,
) -> None:
    with ships.serving("one") as sleeper:
        await ships.ready("one")
        await ships.record(step=1)
        await until(lambda: len(ships.ran()) == 1, within_s=30)
        with ships.serving("two"):
            await ships.ready("two")
            os.kill(sleeper.pid, signal.SIGSTOP)
            (doubtful,) = await ships.results(1)
            ships.go()
            os.kill(sleeper.pid, signal.SIGCONT)
            await ships.ready("one", 2)
            _, late = await ships.results(2)
        for step in (2, 3):
            await ships.record(step=step, held=False)
        told = await ships.results(4)
        assert sleeper.poll() is None
    assert [(result.step, ending(result)) for result in (doubtful, late)] == [(1, "in_doubt"), (1, "ok")]
    assert ([ending(result) for result in told[2:]], len(ships.ran())) == (["ok", "ok"], 3)


async def test_a_tool_runs_as_often_at_a_time_as_it_may_over_all_gateways_also_after_one_died(ships: Fleet) -> None:
    with ships.serving("one", concurrency=2) as first, ships.serving("two", concurrency=2):
        await ships.ready("one")
        await ships.ready("two")
        for step in range(1, 9):
            await ships.record(step=step)
        await until(lambda: len(ships.ran()) == 2, within_s=30)
        await asyncio.sleep(1)  # none may follow
        assert len(ships.ran()) == 2
        first.kill()
        first.wait()
        ships.go()
        told = await ships.results(8)
    assert len(ships.ran()) == 8
    assert {ending(result) for result in told} <= {"ok", "in_doubt"}


async def test_on_a_cluster_calls_outlive_a_gateway_and_a_server(
    tmp_path: Path, cluster: Cluster, cluster_link: NatsLink
) -> None:
    async with fleet(tmp_path, cluster_link, *cluster.settings.urls, replicas=3) as ships:
        with ships.serving("one") as first, ships.serving("two"):
            await ships.ready("one")
            await ships.ready("two")
            for step in range(1, CALLS + 1):
                await ships.record(step=step, held=False)
                if step == CALLS // 3:
                    first.kill()
                if step == CALLS // 2:
                    (await cluster.leader("AGENTIC_LEDGER")).kill()
            told = await ships.results(CALLS)
    assert len(set(ships.ran())) == len(ships.ran())
    assert {ending(result) for result in told} <= {"ok", "in_doubt"}
    assert sum(ending(result) == "ok" for result in told) >= CALLS - 4
