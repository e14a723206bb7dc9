"""Who fills the bus stops nobody else, and before it is full no more is promised than can be kept."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from nats.js.errors import APIError

from agent_service.admission.capacity import Room
from agent_service.bus.room import is_leaderless, of_stream
from agent_service.core.waiting import Status
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.waiting import until

MIB = 1024 * 1024


async def shrunk(made: Bench, stream: str, **settings: Any) -> None:
    config = (await made.link.jetstream.stream_info(stream)).config
    await made.link.jetstream.update_stream(config.evolve(**settings))


async def filled(made: Bench, subject: str) -> None:
    """Nothing more of that size is taken there."""
    body = json.dumps({"goal": "record", "context": {"text": "x" * 50_000}})
    with contextlib.suppress(APIError):
        for number in range(200):
            await made.publish(subject, body, msg_id=f"flood-{number}")
        pytest.fail("the stream takes more than it may have")


async def paused(made: Bench, *, until_: str) -> None:
    """The agent is given no starts, as while more come than it can take."""
    subject = f"$JS.API.CONSUMER.PAUSE.{subjects.STREAM_STARTS}.{subjects.DURABLE_STARTS}"
    await made.link.request(subject, json.dumps({"pause_until": until_}).encode())


@pytest.mark.attack(59, 103)
async def test_whoever_floods_the_bus_with_starts_stops_no_run_and_no_wake(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        before = (await made.wake("before")).json()["run_id"]
        asked = await made.request(1)
        await shrunk(made, subjects.STREAM_STARTS, max_bytes=MIB)
        await paused(made, until_="2100-01-01T00:00:00Z")
        await filled(made, subjects.START)
        await made.answer(asked)
        meanwhile = await made.wake("meanwhile")
        assert meanwhile.status_code == 202
        await made.answer(await made.request(2))
        for run_id in (before, meanwhile.json()["run_id"]):
            assert (await made.ended(run_id))["state"] == "done"
        assert await made.is_ready()


@pytest.mark.attack(98)
async def test_whoever_floods_the_bus_with_results_stops_no_run(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        asked = await made.request(1)
        await shrunk(made, subjects.STREAM_RESULTS, max_bytes=MIB)
        for number in range(60):
            await made.publish(subjects.TOOL_RESULT, "x" * 50_000, msg_id=f"flood-{number}")
        await made.answer(asked)
        assert (await made.ended(run_id))["state"] == "done"


async def test_before_the_bus_is_full_no_run_is_promised_and_those_under_way_end(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        run_id = (await made.wake("before")).json()["run_id"]
        asked = await made.request(1)
        await shrunk(made, subjects.STREAM, discard="new", max_bytes=MIB)
        for number in range(17):
            await made.publish(subjects.SIGNAL, "x" * 50_000, msg_id=f"flood-{number}")
        await until(lambda: _is_refused(made), within_s=20)
        refused = await made.wake("refused")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert "stream AGENTIC is 8" in refused.json()["error"]["message"]
        assert "stream AGENTIC is 8" in (await made.get("/readyz")).text
        await made.answer(asked)
        assert (await made.ended(run_id))["state"] == "done"
        assert (await made.wake("before")).status_code == 202, "what is known already is answered"
        await shrunk(made, subjects.STREAM, discard="new", max_bytes=4 * MIB)
        await until(made.is_ready, within_s=20)
        assert (await made.wake("refused")).status_code == 202


@pytest.mark.parametrize(("discard", "most", "told"), [("new", 100, True), ("new", 200, False), ("old", 100, False)])
def test_only_what_refuses_new_work_when_it_is_full_is_told(discard: str, most: int, told: bool) -> None:
    info = {"config": {"name": "AGENTIC", "discard": discard, "max_bytes": most}, "state": {"bytes": 90}}
    assert bool(list(of_stream(info))) == told


async def test_a_wake_that_waits_is_refused_as_soon_as_nothing_can_be_stored() -> None:
    room = Room(_none, max_queued=1)

    async def wake() -> None:
        async with room.unless_trouble():
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wake())
    await asyncio.sleep(0)
    room.say("stream AGENTIC_RUNS is full", again_s=7)
    with pytest.raises(TryAgain, match="AGENTIC_RUNS is full") as refused:
        await waiting
    assert refused.value.delay_s == 7


async def _none() -> dict[Status, int]:
    return {}


LEADERLESS = [
    {"config": {}, "cluster": {"leader": "", "replicas": [{"name": "n1", "current": True}]}},
    {"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}},
]
LED = [
    {"config": {}, "cluster": {"leader": "n1"}},
    {"config": {}},
    {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}},
]


@pytest.mark.parametrize(("info", "told"), [*((one, True) for one in LEADERLESS), *((one, False) for one in LED)])
def test_a_stream_is_without_a_leader_by_what_jetstream_says_of_it(info: dict[str, Any], told: bool) -> None:
    assert is_leaderless(info) == told


async def _is_refused(made: Bench) -> bool:
    return not await made.is_ready()
