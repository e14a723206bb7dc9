"""Accepted wakes run and refused ones can be repaired, whatever else is on the bus and however full it is."""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from nats.js.errors import APIError

from schemas import keys, subjects
from tests.kit.stack import DONE, get, is_ready, messages, of_goal, payloads, planning, script, to_the_end, until
from tests.kit.tool_bench import Bench, bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
START: dict[str, Any] = {"type": subjects.START, "payload": {"goal": "record"}}
RULES = script(
    *of_goal("^put", planning("put"), DONE),
    planning("look"),
    DONE,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    limits = {"max_context_bytes": 1_010_000}
    async with bench(tmp_path_factory.mktemp("bench"), RULES, max_payload=4 * MIB, limits=limits) as agent:
        yield agent


async def ids_taken(made: Bench) -> int:
    told = (await get(made, "/metrics")).text.splitlines()
    (line,) = [line for line in told if line.startswith("agentic_ids_taken_by_others_")]
    return int(float(line.split()[1]))


async def is_done(made: Bench, run_id: str) -> bool:
    return bool((await to_the_end(made, run_id))["state"] == "done")


@pytest.mark.parametrize("theirs", ["no start at all", json.dumps(START)])
async def test_a_wake_begins_though_somebody_has_taken_the_id_of_its_announcement(made: Bench, theirs: str) -> None:
    name, before = f"order-{len(theirs)}", await ids_taken(made)
    await made.publish(subjects.START, theirs, msg_id=keys.start(name))
    run_id, request = await made.begun(name, context={"of": "ours"})
    await made.answer(request)
    assert await is_done(made, run_id)
    assert await ids_taken(made) == before + 1


async def test_a_malformed_result_of_a_write_leaves_it_in_doubt_at_once(made: Bench) -> None:
    run_id, request = await made.begun("malformed", goal="put")
    await made.answer(request, completed_at="yesterday")
    ended = await to_the_end(made, run_id)
    assert (ended["state"], ended["class"], len(made.asked(run_id))) == ("escalated", "in_doubt", 1)


async def test_a_result_that_is_too_large_ends_the_wait_as_one_that_cannot_be_read(made: Bench) -> None:
    run_id, request = await made.begun("large-result")
    await made.answer(request, result={"summary": "x" * MIB})
    await made.answer(await made.request(2, run_id), msg_id="small")
    assert await is_done(made, run_id)


async def test_a_result_is_heard_though_it_repeats_the_id_of_one_that_was_refused(made: Bench) -> None:
    run_id, request = await made.begun("repeated")
    await made.publish(subjects.TOOL_RESULT, "no result at all", msg_id=keys.result(run_id, 1, 1))
    assert (await made.answer(request)).duplicate
    assert await is_done(made, run_id)


async def test_a_context_almost_as_large_as_a_message_survives_a_stop(made: Bench) -> None:
    body = START | {"payload": {"goal": "record", "context": {"text": "x" * 1_000_000}, "wake_id": "large"}}
    asked = len(made.requests)
    await made.publish(subjects.START, body, msg_id=keys.start("large"))
    await until(lambda: len(made.requests) > asked)
    await made.restart()
    await made.answer(made.requests[asked])
    assert await is_done(made, made.requests[asked]["run_id"])


async def test_the_address_of_a_callback_is_in_no_message_that_the_bus_keeps(made: Bench) -> None:
    hook = "https://hooks.example.org/agent?token=of-its-receiver"
    run_id, request = await made.begun("called-back", callback=hook)
    await made.answer(request)
    assert await is_done(made, run_id)
    completed = partial(payloads, made.link, subjects.COMPLETED)
    await until(completed, lambda found: run_id in {event["run_id"] for event in found})
    told = await made.client.request(subjects.RUN_CALLBACK, json.dumps({"run_id": run_id}).encode())
    assert json.loads(told.data)["callback"] == hook
    kept = [message.body for stream in subjects.STREAMS async for message in messages(made.link, stream=stream)]
    assert any(b'"has_callback":true' in content for content in kept)
    assert not any(b"of-its-receiver" in content for content in kept)


async def recreated(made: Bench) -> None:
    """Deletes and recreates the stream, as `nats stream rm` and `agentic setup` do, without losing a connection."""
    await made.client.jetstream().delete_stream(subjects.STREAM_REQUESTS)
    await made.set_up()


async def purged(made: Bench) -> None:
    await made.client.jetstream().purge_stream(subjects.STREAM_REQUESTS)


@pytest.mark.parametrize("lose", [recreated, purged])
async def test_a_request_is_made_again_when_its_stream_was_emptied_or_made_anew(
    made: Bench, lose: Callable[[Bench], Awaitable[None]]
) -> None:
    run_id, first = await made.begun(lose.__name__, goal="put")
    await lose(made)
    await until(lambda: made.heard.count(first) > 1)
    assert made.asked(run_id) == [first]
    await made.answer(first)
    assert await is_done(made, run_id)


async def test_a_message_about_an_unknown_run_is_tried_for_some_seconds_and_then_kept_with_the_reason(
    made: Bench,
) -> None:
    elsewhere = {"run_id": "run_elsewhere"}
    result = {"step": 1, "tool": "look", "status": "ok", "result": {}, "completed_at": "2026-11-21T12:00:00Z"}
    said: dict[str, dict[str, Any]] = {
        subjects.TOOL_RESULT: result,
        subjects.CANCEL: {},
        subjects.SIGNAL: {"signal_id": "s1", "kind": "resume"},
        subjects.START: {"goal": "record", "wake_id": "theirs"},
    }

    async def letters() -> list[Mapping[str, str]]:
        kept = [message.headers async for message in messages(made.link, stream=subjects.STREAM_DEAD_LETTERS)]
        return [letter for letter in kept if "no run run_elsewhere here" in letter.get("Dead-Letter-Reason", "")]

    before, began = len((await get(made, "/v1/runs")).json()["runs"]), time.monotonic()
    for subject, payload in said.items():
        await made.publish(subject, {"type": subject, "payload": elsewhere | payload})
    await until(letters)
    assert time.monotonic() - began > 4.5
    found = await until(letters, lambda found: len(found) >= len(said))
    assert {letter["Dead-Letter-Subject"] for letter in found} == set(said)
    assert {letter["Dead-Letter-Deliveries"] for letter in found} == {"6"}
    assert len((await get(made, "/v1/runs")).json()["runs"]) == before


@asynccontextmanager
async def shrunk(made: Bench, stream: str, **settings: Any) -> AsyncIterator[None]:
    config = (await made.link.client.jetstream().stream_info(stream)).config
    await made.link.client.jetstream().update_stream(config.evolve(**settings))
    try:
        yield
    finally:
        await made.link.client.jetstream().update_stream(config)


@asynccontextmanager
async def without_starts(made: Bench) -> AsyncIterator[None]:
    """Keeps starts from the agent, as if more came than it can take, with little room for them."""
    config = (await made.link.client.jetstream().stream_info(subjects.STREAM_STARTS)).config
    await made.link.client.jetstream().update_stream(config.evolve(max_bytes=MIB))
    pause = f"$JS.API.CONSUMER.PAUSE.{subjects.STREAM_STARTS}.{subjects.DURABLE_STARTS}"
    await made.link.request(pause, json.dumps({"pause_until": "2100-01-01T00:00:00Z"}).encode())
    try:
        yield
    finally:
        await made.link.client.jetstream().delete_stream(subjects.STREAM_STARTS)
        await made.set_up()


async def flooded(made: Bench, subject: str, times: int) -> None:
    body = json.dumps({"goal": "record", "context": {"text": "x" * 50_000}})
    for number in range(times):
        await made.publish(subject, body, msg_id=f"flood-{subject}-{number}")


@pytest.mark.attack(59, 103)
async def test_whoever_floods_the_bus_with_starts_stops_no_run_and_no_wake(made: Bench) -> None:
    before, asked = await made.begun("before-starts")
    async with without_starts(made):
        with pytest.raises(APIError):  # there is no more room
            await flooded(made, subjects.START, 200)
        await made.answer(asked)
        meanwhile, request = await made.begun("meanwhile")
        await made.answer(request)
        assert [await is_done(made, run_id) for run_id in (before, meanwhile)] == [True, True]
        assert await is_ready(made)


@pytest.mark.attack(98)
async def test_whoever_floods_the_bus_with_results_stops_no_run(made: Bench) -> None:
    run_id, asked = await made.begun("before-results")
    async with shrunk(made, subjects.STREAM_RESULTS, max_bytes=MIB):
        await flooded(made, subjects.TOOL_RESULT, 60)
        await made.answer(asked)
        assert await is_done(made, run_id)


async def test_before_the_bus_is_full_no_run_is_promised_and_those_under_way_end(made: Bench) -> None:
    run_id, asked = await made.begun("before-full")
    used = (await made.link.client.jetstream().stream_info(subjects.STREAM)).state.bytes
    async with shrunk(made, subjects.STREAM, discard="new", max_bytes=int((used + 17 * 50_300) / 0.85)):
        with contextlib.suppress(APIError):
            await flooded(made, subjects.SIGNAL, 17)
        await until(lambda: get(made, "/readyz"), lambda answer: "stream AGENTIC is 8" in answer.text)
        refused = await made.wake("refused")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert "stream AGENTIC is 8" in refused.json()["error"]["message"]
        await made.answer(asked)
        assert await is_done(made, run_id)
        assert (await made.wake("before-full")).status_code == 202, "what is known already is answered"
    await until(lambda: is_ready(made))
    assert (await made.wake("refused")).status_code == 202
