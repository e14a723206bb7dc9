"""What was accepted runs, and what was refused can be put right: whatever else is on the bus under whichever id."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from schemas import keys, subjects
from schemas.generate import STREAMS
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.waiting import until

MEBIBYTE = 1024 * 1024
START: dict[str, Any] = {"type": subjects.START, "payload": {"goal": "record"}}


async def metric(made: Bench, name: str) -> int:
    (line,) = [line for line in (await made.get("/metrics")).text.splitlines() if line.startswith(f"agentic_{name}_")]
    return int(float(line.split()[1]))


@pytest.mark.parametrize("theirs", ["no start at all", json.dumps(START)])
async def test_a_wake_begins_though_somebody_has_taken_the_id_of_its_announcement(tmp_path: Path, theirs: str) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        await made.publish(subjects.START, theirs, msg_id=keys.start("order-2"))
        answer = await made.wake("order-2", context={"of": "ours"})
        assert answer.status_code == 202
        run_id = answer.json()["run_id"]
        await until(lambda: run_id in {request["run_id"] for request in made.requests})
        (request,) = [request for request in made.requests if request["run_id"] == run_id]
        await made.answer(request)
        assert (await made.ended(run_id))["state"] == "done"
        assert await metric(made, "ids_taken_by_others") == 1


async def test_what_is_accepted_begins_after_a_crash_though_the_bus_has_lost_every_message(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look"), mortal=True) as made:
        run_ids = [(await made.wake(f"w-{number}")).json()["run_id"] for number in range(20)]
        made.agent.kill()
        for stream in STREAMS:
            await made.client.jetstream().delete_stream(stream)
        await made.set_up()
        await until(lambda: {request["run_id"] for request in made.requests} == set(run_ids), within_s=20)


async def test_a_malformed_result_of_a_write_leaves_it_in_doubt_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("put")) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await made.answer(await made.request(1), completed_at="yesterday")
        ended = await made.ended(run_id)
        assert ended["state"] == "escalated"
        assert "in_doubt" in json.dumps(ended)
        assert len(made.requests) == 1


async def test_a_result_that_is_too_large_ends_the_wait_as_one_that_cannot_be_read(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look"), max_payload=4 * MEBIBYTE) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await made.answer(await made.request(1), result={"summary": "x" * MEBIBYTE})
        await made.answer(await made.request(2), msg_id="small")
        assert (await made.ended(run_id))["state"] == "done"


async def test_a_result_is_heard_though_it_repeats_the_id_of_one_that_was_refused(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        request = await made.request(1)
        await made.publish(subjects.TOOL_RESULT, "no result at all", msg_id=keys.result(run_id, 1, 1))
        assert (await made.answer(request)).duplicate
        assert (await made.ended(run_id))["state"] == "done"


async def test_a_context_beyond_the_limit_is_refused_at_once_and_one_near_a_message_survives(tmp_path: Path) -> None:
    large = {"text": "x" * 1_000_000}
    async with bench(tmp_path, one_step("look"), limits={"max_context_bytes": 1_010_000}) as made:
        await made.publish(subjects.START, {**START, "payload": {"goal": "record", "context": large}}, msg_id="large")
        request = await made.request(1)
        await made.here.stop()
        made.here.start()
        await until(made.is_ready)
        await made.answer(request)
        assert (await made.ended(request["run_id"]))["state"] == "done"
    async with bench(tmp_path / "small", one_step("look")) as made:
        answer = await made.wake("w", context={"text": "x" * 70_000})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "context")


async def test_the_address_of_a_callback_is_in_no_message_that_the_bus_keeps(tmp_path: Path) -> None:
    hook = "https://hooks.example.org/agent?token=of-its-receiver"
    async with bench(tmp_path, one_step("look")) as made:
        run_id = (await made.wake("w", callback=hook)).json()["run_id"]
        await made.answer(await made.request(1))
        assert (await made.ended(run_id))["state"] == "done"
        await until(lambda: is_told(made, subjects.COMPLETED))
        told = await made.client.request(subjects.RUN_CALLBACK, json.dumps({"run_id": run_id}).encode())
        assert json.loads(told.data)["callback"] == hook
        kept = [content async for content in everything(made)]
        assert any(b'"has_callback":true' in content for content in kept)
        assert not any(b"of-its-receiver" in content for content in kept)


async def is_told(made: Bench, subject: str) -> bool:
    state = (await made.client.jetstream().stream_info(subjects.STREAM, subjects_filter=subject)).state
    return bool(state.subjects)


async def everything(made: Bench) -> AsyncIterator[bytes]:
    for stream in STREAMS:
        state = (await made.client.jetstream().stream_info(stream)).state
        for seq in range(state.first_seq or 1, state.last_seq + 1):
            yield (await made.client.jetstream().get_msg(stream, seq)).data or b""


async def recreated(made: Bench) -> None:
    """The stream is removed and made anew, as by `nats stream rm` and `agentic setup`; no connection is lost."""
    await made.client.jetstream().delete_stream(subjects.STREAM_REQUESTS)
    await made.set_up()


async def purged(made: Bench) -> None:
    await made.client.jetstream().purge_stream(subjects.STREAM_REQUESTS)


@pytest.mark.attack(103)
@pytest.mark.parametrize("lose", [recreated, purged])
async def test_a_request_is_made_again_when_its_stream_was_emptied_or_made_anew(
    tmp_path: Path, lose: Callable[[Bench], Awaitable[None]]
) -> None:
    async with bench(tmp_path, one_step("put")) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        first = await made.request(1)
        await lose(made)
        await until(lambda: len(made.heard) > 1)
        assert made.requests == [first]
        await made.answer(first)
        assert (await made.ended(run_id))["state"] == "done"
