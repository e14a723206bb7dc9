"""Three agents on a cluster, as processes: what one dies in the middle of goes on in another, and none stands in
another's way."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from schemas import subjects
from tests.e2e.bodies import PROBES, to_the_end, wake
from tests.e2e.minds import RecordingMind, asking
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, Member, fleet
from tests.kit.waiting import until
from tests.models.fake_anthropic import FakeAnthropic

STEPS = 2
CALLS = STEPS + 2
"""A framing with the first plan, a reflection for each step, and a verification of the claim to be done."""
ELSEWHERE_WITHIN_S = 6.0
"""The time in which what a process had in hand is another's, and a second."""


@pytest.fixture
def api() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic()
    yield fake
    fake.close()


@pytest.fixture
def mind(tmp_path: Path, api: FakeAnthropic) -> RecordingMind:
    api.policy = made = RecordingMind(tmp_path / "marks" / "lines", steps=STEPS)
    return made


@asynccontextmanager
async def three(cluster: Cluster, folder: Path, api: FakeAnthropic) -> AsyncIterator[Fleet]:
    options = FleetOptions(
        folder=folder / "fleet",
        agents=3,
        gateways=1,
        store="jetstream",
        plugins=(PROBES,),
        written=(folder / "marks",),
        agent=asking(api.base_url),
    )
    async with fleet(cluster, options) as ships:
        yield ships


async def get(member: Member, path: str) -> Any:
    async with httpx2.AsyncClient(base_url=member.url, trust_env=False, timeout=20) as client:
        return (await client.get(path)).json()


async def kinds(member: Member, run_id: str) -> list[str]:
    return [entry["kind"] for entry in (await get(member, f"/v1/runs/{run_id}/entries"))["entries"]]


async def endings(ships: Fleet) -> int:
    async with ships.cluster.linked() as link:
        info = await link.jetstream.stream_info(subjects.STREAM, subjects_filter=f"{subjects.EVENTS}*")
        assert info.state.subjects is not None
        return sum(number for subject, number in info.state.subjects.items() if subject in subjects.ENDINGS)


async def check_the_end(ships: Fleet, member: Member, run_id: str, mind: RecordingMind) -> dict[str, Any]:
    ended = await to_the_end(member, run_id)
    assert ended["state"] == "done", ended
    assert mind.lines() == [1] * STEPS
    assert await endings(ships) == 1
    return ended


async def test_a_run_whose_agent_is_killed_while_the_model_thinks_goes_on_elsewhere(
    cluster: Cluster, tmp_path: Path, api: FakeAnthropic, mind: RecordingMind
) -> None:
    held = mind.hold(1)
    async with three(cluster, tmp_path, api) as ships:
        first, second, third = ships.agents
        run_id = await wake(first)
        await until(held.reached.is_set, within_s=30)
        first.kill()
        killed_at = time.monotonic()
        await until(lambda: len(api.requests) == 2, within_s=30)
        assert time.monotonic() - killed_at < ELSEWHERE_WITHIN_S
        held.over.set()
        ended = await check_the_end(ships, second, run_id, mind)
        assert len(api.requests) == CALLS + 1
        assert (ended["usage"]["calls"], ended["usage"]["lost_calls"]) == (CALLS, 1)
        assert await kinds(third, run_id) == await kinds(second, run_id)


async def test_the_reply_of_an_agent_that_was_stopped_for_too_long_counts_for_nothing_and_it_works_on(
    cluster: Cluster, tmp_path: Path, api: FakeAnthropic, mind: RecordingMind
) -> None:
    held, again = mind.hold(1), mind.hold(2)
    async with three(cluster, tmp_path, api) as ships:
        first, second, _ = ships.agents
        run_id = await wake(first)
        await until(held.reached.is_set, within_s=30)
        first.stop()
        await until(again.reached.is_set, within_s=30)
        held.over.set()
        first.go_on()
        await first.ready()
        assert (await kinds(second, run_id))[-1] == "CallReserved"
        again.over.set()
        ended = await check_the_end(ships, first, run_id, mind)
        assert len(api.requests) == CALLS + 1
        assert (ended["usage"]["calls"], ended["usage"]["lost_calls"]) == (CALLS, 1)
