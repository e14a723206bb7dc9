"""The executors of deploy/executors/ do what docs/BUS.md requires, beside the gateway and each other."""

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from agent_service.workbench.dev import DevStack, until_ready
from groundwork.nats.link import NatsLink
from schemas import keys, subjects
from tests.executors.shipped import BASH, EACH, PYTHON, Shipped, asking, heard
from tests.kit import nats_cli
from tests.kit.stack import linked, on_the_bus, running, shown, to_the_end, wake
from tests.kit.waiting import until

HERE = (PYTHON, BASH) if nats_cli.FOUND else (PYTHON,)
ALL = "all"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevStack]:
    """A stack whose runs call the tool that their goal names, or all of them."""
    each = {shipped.tool: [(shipped.tool, "handle", shipped.arguments)] for shipped in HERE}
    script = asking(each | {ALL: [*(step for (step,) in each.values()), ("probe", "show", {})]})
    async with running(tmp_path_factory.mktemp("shipped"), script) as made:
        yield made


async def test_each_answers_what_is_asked_of_it_beside_the_others_and_the_gateway(
    made: DevStack, tmp_path: Path
) -> None:
    with ExitStack() as at_work:
        for shipped in HERE:
            at_work.enter_context(shipped.at_work(tmp_path, made.nats.url))
            await heard(made, shipped)
        ended = await to_the_end(made, await wake(made, ALL))
    served = (*((shipped.tool, shipped.executor) for shipped in HERE), ("probe", subjects.SERVICE_GATEWAY))
    assert [(step["tool"], step["status"]) for step in ended["steps"]] == [(tool, "ok") for tool, _ in served]
    assert [step["summary"] for step in ended["steps"][:-1]] == [shipped.summary for shipped in HERE]
    for tool, executor in served:
        assert {request["executor"] for request in await on_the_bus(made, subjects.tool_request(tool))} == {executor}


@EACH
async def test_a_request_waits_while_it_is_away_and_no_foreign_message_holds_it_up(
    made: DevStack, tmp_path: Path, shipped: Shipped
) -> None:
    with shipped.at_work(tmp_path, made.nats.url):
        await heard(made, shipped)
    run_id = await wake(made, shipped.tool)
    await shown(made, run_id, lambda run: run["pending"])
    key = keys.result(run_id, 1, 1)
    async with linked(made.nats.url) as link:
        await link.publish(subjects.TOOL_RESULT, b"not even JSON", msg_id=key, headers={})
        with shipped.at_work(tmp_path, made.nats.url):
            assert (await to_the_end(made, run_id))["state"] == "done"
            await until(lambda: is_stored(link, f"{key}#2"))
        stored = await link.client.jetstream().get_last_msg(subjects.STREAM_RESULTS, subjects.TOOL_RESULT)
    assert json.loads(stored.data or b"")["dedupe_key"] == key


@EACH
async def test_it_goes_on_after_the_bus_was_killed(made: DevStack, tmp_path: Path, shipped: Shipped) -> None:
    with shipped.at_work(tmp_path, made.nats.url):
        await heard(made, shipped)
        made.nats.kill()
        await made.nats.start()
        await until_ready(made)
        assert (await to_the_end(made, await wake(made, shipped.tool)))["state"] == "done"


async def is_stored(link: NatsLink, msg_id: str) -> bool:
    """True if it is the newest result: the agent gets it before the stream stores it."""
    newest = await link.client.jetstream().get_last_msg(subjects.STREAM_RESULTS, subjects.TOOL_RESULT)
    return (newest.headers or {}).get("Nats-Msg-Id") == msg_id
