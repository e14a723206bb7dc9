"""The executors of deploy/executors/ do what docs/BUS.md asks of one, beside the gateway and each other."""

import json
from pathlib import Path

import pytest

from agent_service.workbench.dev import DevStack, until_ready
from groundwork.nats.link import NatsLink
from schemas import keys, subjects
from tests.e2e.bodies import on_the_bus, running, to_the_end, view, wake
from tests.executors.shipped import BASH, EACH, PYTHON, Shipped, Step, asking, heard, linked
from tests.kit.nats_cli import needs_nats_cli
from tests.kit.waiting import until


@EACH
async def test_it_answers_what_is_asked_of_it_beside_the_gateway(tmp_path: Path, shipped: Shipped) -> None:
    steps: list[Step] = [(shipped.tool, "handle", shipped.arguments), ("probe", "show", {})]
    async with running(tmp_path / "stack", asking(*steps)) as made:
        with shipped.at_work(tmp_path, made.nats.url):
            await heard(made, shipped)
            ended = await to_the_end(made, await wake(made))
        requests = [await on_the_bus(made, subjects.tool_request(route)) for route in (shipped.tool, "probe")]
    assert [(step["tool"], step["status"]) for step in ended["steps"]] == [(shipped.tool, "ok"), ("probe", "ok")]
    assert ended["steps"][0]["summary"] == shipped.summary
    assert [request["executor"] for (request,) in requests] == [shipped.executor, subjects.SERVICE_GATEWAY]


@EACH
async def test_a_request_waits_while_it_is_away(tmp_path: Path, shipped: Shipped) -> None:
    async with running(tmp_path / "stack", asking((shipped.tool, "handle", shipped.arguments))) as made:
        with shipped.at_work(tmp_path, made.nats.url):
            await heard(made, shipped)
        run_id = await wake(made)
        await until(lambda: _waits(made, run_id), within_s=30)
        with shipped.at_work(tmp_path, made.nats.url):
            assert (await to_the_end(made, run_id))["state"] == "done"


@EACH
async def test_a_message_of_somebody_else_under_its_key_holds_nothing_up(tmp_path: Path, shipped: Shipped) -> None:
    async with running(tmp_path / "stack", asking((shipped.tool, "handle", shipped.arguments))) as made:
        with shipped.at_work(tmp_path, made.nats.url):
            await heard(made, shipped)
        run_id = await wake(made)
        await until(lambda: _waits(made, run_id), within_s=30)
        key = keys.result(run_id, 1, 1)
        async with linked(made) as link:
            await link.publish(subjects.TOOL_RESULT, b"not even JSON", msg_id=key, headers={})
            with shipped.at_work(tmp_path, made.nats.url):
                assert (await to_the_end(made, run_id))["state"] == "done"
                await until(lambda: _is_stored(link, f"{key}#2"))
            stored = await link.jetstream.get_last_msg(subjects.STREAM_RESULTS, subjects.TOOL_RESULT)
    assert json.loads(stored.data or b"")["dedupe_key"] == key


async def _is_stored(link: NatsLink, msg_id: str) -> bool:
    """As the newest result: the agent has heard it before the stream had it."""
    newest = await link.jetstream.get_last_msg(subjects.STREAM_RESULTS, subjects.TOOL_RESULT)
    return (newest.headers or {}).get("Nats-Msg-Id") == msg_id


@EACH
async def test_it_goes_on_after_the_bus_was_killed(tmp_path: Path, shipped: Shipped) -> None:
    async with running(tmp_path / "stack", asking((shipped.tool, "handle", shipped.arguments))) as made:
        with shipped.at_work(tmp_path, made.nats.url):
            await heard(made, shipped)
            made.nats.kill()
            await made.nats.start()
            await until_ready(made)
            assert (await to_the_end(made, await wake(made)))["state"] == "done"


@pytest.mark.natscli
@needs_nats_cli
async def test_executors_of_several_kinds_serve_one_run(tmp_path: Path) -> None:
    steps: list[Step] = [(shipped.tool, "handle", shipped.arguments) for shipped in (PYTHON, BASH)]
    async with running(tmp_path / "stack", asking(*steps, ("probe", "show", {}))) as made:
        with PYTHON.at_work(tmp_path, made.nats.url), BASH.at_work(tmp_path, made.nats.url):
            await heard(made, PYTHON)
            await heard(made, BASH)
            ended = await to_the_end(made, await wake(made))
    assert [step["status"] for step in ended["steps"]] == ["ok", "ok", "ok"]


async def _waits(made: DevStack, run_id: str) -> bool:
    return bool((await view(made, run_id)).get("pending"))
