"""A login that may only ask cannot publish elsewhere by its reply subject."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.js.api import AckPolicy

from schemas import subjects
from tests.kit.stack import one_step
from tests.kit.tool_bench import Bench, bench
from tests.kit.waiting import until

STATUS = f"{subjects.SERVICE_AGENT}.status"


@asynccontextmanager
async def a_run(folder: Path) -> AsyncIterator[tuple[Bench, str]]:
    """One that waits for its first result; whatever is done meanwhile, it is reached."""
    async with bench(folder, one_step("look")) as made:
        run_id = str((await made.wake("w")).json()["run_id"])
        first = await made.request(1)
        yield made, run_id
        await made.answer(first)
        assert (await made.ended(run_id))["state"] == "done"


@pytest.mark.attack(97, 98)
async def test_a_question_whose_answer_would_cancel_a_run_cancels_none(tmp_path: Path) -> None:
    """The answer to `status` is JSON with a `run_id`: all that a cancel needs."""
    async with a_run(tmp_path) as (made, run_id):
        question = json.dumps({"run_id": run_id}).encode()
        await made.client.publish(STATUS, question, reply=subjects.CANCEL)
        answer = await made.client.request(STATUS, question)
        assert json.loads(answer.data)["run_id"] == run_id


@pytest.mark.attack(97, 98)
@pytest.mark.parametrize("subject", [subjects.CANCEL, subjects.SIGNAL, subjects.TOOL_RESULT, subjects.COMPLETED])
async def test_an_executor_that_has_its_requests_sent_elsewhere_moves_no_run(subject: str, tmp_path: Path) -> None:
    """JetStream sends what is asked of a consumer wherever the asker says, also where he may not publish."""
    async with a_run(tmp_path) as (made, _):
        stream, name = subjects.STREAM_REQUESTS, "executor"
        await made.client.jetstream().add_consumer(stream, durable_name=name, ack_policy=AckPolicy.EXPLICIT)
        await made.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", b"", reply=subject)

        async def was_delivered() -> bool:
            return bool((await made.client.jetstream().consumer_info(stream, name)).num_ack_pending)

        await until(was_delivered)


@pytest.mark.attack(97, 98)
@pytest.mark.parametrize("subject", [subjects.CANCEL, subjects.SIGNAL, f"$KV.{subjects.LEASE_BUCKET}.halt"])
async def test_a_receipt_that_is_sent_elsewhere_moves_no_run(subject: str, tmp_path: Path) -> None:
    async with a_run(tmp_path) as (made, _):
        receipts = await made.client.subscribe(subject)
        await made.client.publish(subjects.TOOL_RESULT, b"{}", reply=subject)
        assert json.loads((await receipts.next_msg(timeout=10)).data)["stream"] == subjects.STREAM_RESULTS
