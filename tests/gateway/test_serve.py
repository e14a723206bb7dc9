"""The gateway as a process: started by its command line, killed, stopped, and told apart from a misconfigured one."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import BucketSpec, Topology, create_missing
from schemas import subjects
from schemas.events import ToolResult
from tests.gateway.on_nats import a_bus, all_acknowledged, results, send
from tests.gateway.parts import a_request
from tests.gateway.served import Gateway
from tests.kit.waiting import until


async def has_results(link: NatsLink, number: int) -> bool:
    return len(await results(link)) == number


@pytest.fixture
async def gateway(tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats) -> Gateway:
    await a_bus(link, ack_wait=2)
    return Gateway(tmp_path, nats_server.url)


def a_record(tmp_path: Path, *, step: int = 1) -> Any:
    payload = {"file": str(tmp_path / "marks" / "ran"), "wait_for": str(tmp_path / "marks" / "go")}
    return a_request("record", payload, tool="probe", step=step)


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "marks" / "ran").read_text().splitlines()) if (tmp_path / "marks" / "ran").exists() else 0


async def the_result(link: NatsLink) -> ToolResult:
    await until(lambda: all_acknowledged(link), within_s=30)
    (result,) = await results(link)
    return result


async def test_a_gateway_that_is_killed_finishes_the_call_after_its_restart_and_runs_it_once(
    gateway: Gateway, link: NatsLink, tmp_path: Path
) -> None:
    await send(link, a_record(tmp_path), "probe")
    with gateway.serving() as process:
        await until(lambda: runs(tmp_path) == 1, within_s=30)
        process.kill()
        process.wait()
    with gateway.serving():
        await until(lambda: gateway.starts() == 2, within_s=30)
        (tmp_path / "marks" / "go").touch()
        result = await the_result(link)
    assert (result.status, runs(tmp_path)) == ("ok", 1)


async def test_told_to_stop_it_leaves_a_long_call_to_the_next_start(
    gateway: Gateway, link: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    brief = Gateway(tmp_path, nats_server.url, grace_s=0.2)
    await send(link, a_record(tmp_path), "probe")
    with brief.serving() as process:
        await until(lambda: runs(tmp_path) == 1, within_s=30)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 10) == 0
    (tmp_path / "marks" / "go").touch()
    with gateway.serving() as process:
        assert (await the_result(link)).status == "ok"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 10) == 0
    assert runs(tmp_path) == 1


async def test_after_a_kill_of_the_gateway_and_its_plugin_a_write_is_in_doubt(
    gateway: Gateway, link: NatsLink, tmp_path: Path
) -> None:
    await send(link, a_record(tmp_path), "probe")
    with gateway.serving() as process:
        await until(lambda: runs(tmp_path) == 1, within_s=30)
        process.kill()
        process.wait()
    (began,) = (tmp_path / "store").glob("calls/*/began")
    os.killpg(int(began.read_text()), signal.SIGKILL)
    with gateway.serving():
        result = await the_result(link)
    assert result.error is not None
    assert (result.error.error_class, result.error.retryable) == ("in_doubt", False)
    assert runs(tmp_path) == 1


async def test_what_finds_no_room_in_the_bucket_ends_the_step_at_once_with_the_remedy(
    link: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    await create_missing(link, Topology(buckets=(BucketSpec(subjects.ARTIFACT_BUCKET, {"max_bytes": 1 << 16}),)))
    await a_bus(link)
    inside = Gateway(tmp_path, nats_server.url, runner="in_process")
    await send(link, a_request(tool="echo", payload={"a": "well " * 40_000}), "echo")
    with inside.serving():
        error = (await the_result(link)).error
    assert error is not None
    assert (error.error_class, error.retryable) == ("storage_full", False)
    assert "the tool has run" in error.message
    assert f"`nats stream edit OBJ_{subjects.ARTIFACT_BUCKET} --max-bytes=SIZE`" in error.message
    assert "well well well" in error.message


async def test_two_gateways_never_share_a_store(gateway: Gateway) -> None:
    with gateway.serving() as first:
        await until(lambda: gateway.starts() == 1, within_s=30)
        second = await asyncio.to_thread(gateway.run, "serve")
    assert second.returncode == 78
    assert f"process {first.pid}" in second.stderr


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tools": {"fetch": None}}, "there is no plugin fetch"),
        ({"tools": ["probe", "agentic-wake"]}, "start an agent"),
        ({"plugins": {"folders": []}}, "gateway.plugins.folders"),
        ({"plugins": {"folders": ["/nowhere"]}}, "/nowhere"),
        ({"slot": 3}, "did you mean slots"),
        ({"tools": {"probe": {"timeout": 3}}}, "timeout_s"),
    ],
)
def test_the_check_fails_and_names_what_is_wrong(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    checked = Gateway(tmp_path, "nats://127.0.0.1:1", **settings).run("check")
    assert checked.returncode != 0
    assert told in checked.stdout + checked.stderr


async def test_after_its_stream_was_made_anew_it_gives_its_newest_results_again_and_takes_requests(
    gateway: Gateway, link: NatsLink, tmp_path: Path
) -> None:
    await send(link, a_record(tmp_path), "probe")
    (tmp_path / "marks" / "go").touch()
    with gateway.serving():
        first = await the_result(link)
        await link.jetstream.delete_stream(subjects.STREAM_RESULTS)
        await a_bus(link, ack_wait=2)
        await until(lambda: has_results(link, 1), within_s=10)
        assert await results(link) == [first]
        await send(link, a_record(tmp_path, step=2), "probe")
        await until(lambda: has_results(link, 2), within_s=10)
    assert runs(tmp_path) == 2
