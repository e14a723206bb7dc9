"""A login that may only ask cannot publish elsewhere by its reply subject."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from schemas import subjects
from tests.kit.stack import one_step, to_the_end
from tests.kit.tool_bench import Bench, bench
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
STATUS = f"{subjects.SERVICE_AGENT}.status"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with bench(tmp_path_factory.mktemp("bench"), one_step("look")) as agent:
        yield agent


@asynccontextmanager
async def a_run(made: Bench, wake_id: str) -> AsyncIterator[str]:
    """One that waits for its first result; whatever is done meanwhile, it is reached."""
    run_id, first = await made.begun(wake_id)
    yield run_id
    await made.answer(first)
    assert (await to_the_end(made, run_id))["state"] == "done"


@pytest.mark.attack(97, 98)
async def test_a_question_whose_answer_would_cancel_a_run_cancels_none(made: Bench) -> None:
    """The answer to `status` is JSON with a `run_id`: all that a cancel needs."""
    async with a_run(made, "status") as run_id:
        question = json.dumps({"run_id": run_id}).encode()
        await made.client.publish(STATUS, question, reply=subjects.CANCEL)
        answer = await made.client.request(STATUS, question)
        assert json.loads(answer.data)["run_id"] == run_id


@pytest.mark.attack(97, 98)
@pytest.mark.parametrize("subject", [subjects.CANCEL, subjects.SIGNAL, subjects.TOOL_RESULT, subjects.COMPLETED])
async def test_an_executor_that_has_its_requests_sent_elsewhere_moves_no_run(subject: str, made: Bench) -> None:
    """JetStream sends what is asked of a consumer wherever the asker says, also where he may not publish."""
    stream, name = subjects.STREAM_REQUESTS, f"executor-{subject.replace('.', '-')}"
    async with a_run(made, name):
        newest = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT, deliver_policy=DeliverPolicy.LAST)
        await made.client.jetstream().add_consumer(stream, newest)
        await made.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", b"", reply=subject)
        jetstream = made.client.jetstream()
        await until(lambda: jetstream.consumer_info(stream, name), lambda info: info.num_ack_pending)


@pytest.mark.attack(97, 98)
@pytest.mark.parametrize("subject", [subjects.CANCEL, subjects.SIGNAL, f"$KV.{subjects.LEASE_BUCKET}.halt"])
async def test_a_receipt_that_is_sent_elsewhere_moves_no_run(subject: str, made: Bench) -> None:
    async with a_run(made, f"receipt-{subject.strip('$')}"):
        receipts = await made.client.subscribe(subject)
        await made.client.publish(subjects.TOOL_RESULT, b"{}", reply=subject)
        assert json.loads((await receipts.next_msg(timeout=10)).data)["stream"] == subjects.STREAM_RESULTS
