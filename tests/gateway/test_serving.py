"""The gateway as a process: started, stopped, killed, taken over and asked for its metrics; and several of one bus."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from agent_service.bus.gateway import statuses
from agent_service.bus.topology import topology
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from schemas import subjects
from tests.gateway.parts import RUN, a_request
from tests.gateway.served import Gateway, a_bus, all_acknowledged, ending, record, results, send
from tests.kit.stack import lines
from tests.kit.waiting import until


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await a_bus(link, ack_wait=2)
    return link


async def endings(bus: NatsLink) -> list[str]:
    """Endings of all calls, once they are settled."""
    await until(lambda: all_acknowledged(bus), within_s=30)
    return [ending(result) for result in await results(bus)]


async def test_a_call_outlives_a_stop_a_kill_and_a_take_over_of_its_gateway_and_runs_once(
    bus: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    gateway = Gateway(tmp_path, nats_server.url, grace_s=0.2, lease_s=1)
    await record(bus, tmp_path)
    with gateway.serving() as stopped:
        await until(lambda: lines(tmp_path / "marks" / "ran"), within_s=30)
        await stopped.end()
        assert await stopped.ended() == 0
    with gateway.serving() as killed:
        await until(lambda: gateway.starts() == 2, within_s=30)
        second = await asyncio.to_thread(gateway.run, "serve")
        assert (second.returncode, f"process {killed.pid}" in second.stderr) == (78, True)
        killed.kill()
    with gateway.serving() as blue:
        await until(lambda: gateway.starts() == 3, within_s=30)
        with gateway.serving("--take-over"):
            assert await blue.ended() == 78
            (tmp_path / "marks" / "go").touch()
            assert await endings(bus) == ["ok"]
    assert lines(tmp_path / "marks" / "ran") == 1


async def test_after_its_stream_was_made_anew_it_gives_its_newest_results_again_and_takes_requests(
    bus: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    async def has_results(number: int) -> bool:
        return len(await results(bus)) == number

    await record(bus, tmp_path)
    gateway = Gateway(tmp_path, nats_server.url)
    (tmp_path / "marks" / "go").touch()
    with gateway.serving():
        assert await endings(bus) == ["ok"]
        first = await results(bus)
        await bus.client.jetstream().delete_stream(subjects.STREAM_RESULTS)
        await a_bus(bus, ack_wait=2)
        await until(lambda: has_results(1), within_s=10)
        assert await results(bus) == first
        await record(bus, tmp_path, step=2)
        await until(lambda: has_results(2), within_s=10)
    assert lines(tmp_path / "marks" / "ran") == 2


async def test_a_gateway_at_work_names_no_run_in_its_metrics_and_tells_an_outage_of_the_bus_once(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    async def is_ready(*, ready: bool) -> bool:
        async with httpx2.AsyncClient(base_url=gateway.url, trust_env=False) as client:
            answer = await client.get("/readyz")
        assert (answer.status_code == 200) is answer.json()["ready"]
        return bool(answer.json()["ready"] is ready)

    gateway = Gateway(tmp_path, nats_server.url, runner="in_process", lease_s=60)
    await send(bus, a_request(tool="echo", payload={"a": 1}), "echo")
    with gateway.serving():
        assert await endings(bus) == ["ok"]
        await until(lambda: is_ready(ready=True), within_s=30)
        text = httpx2.get(f"{gateway.url}/metrics", trust_env=False).text
        nats_server.kill()
        await until(lambda: is_ready(ready=False), within_s=30)
        await until(lambda: "NATS is away" in gateway.log.read_text(), within_s=30)
        await nats_server.start()
        await until(lambda: is_ready(ready=True), within_s=30)
    assert ("agentic_ledger_open" in text, RUN in text) == (True, False)
    told = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    outages = [(line["level"], line["event"]) for line in told if "outage" in str(line.get("event"))]
    assert outages == [("WARNING", "outage_began"), ("WARNING", "outage_over")]


CALLS = 12


async def test_all_take_their_part_each_call_is_run_once_and_those_of_a_machine_that_died_are_in_doubt(
    tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats
) -> None:
    def machine(name: str) -> Gateway:
        home, shared = tmp_path / name, {"store": "jetstream", "keys_file": str(tmp_path / "gateway.keys")}
        home.mkdir()
        settings = shared | {"cache": str(home / "copy"), "concurrency": CALLS}
        return Gateway(home, nats_server.url, marks=tmp_path / "marks", **settings)

    async def all_ask() -> bool:
        info = await link.client.jetstream().consumer_info(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
        return (info.num_waiting or 0) >= len(gateways)

    async def all_told() -> bool:
        return await all_acknowledged(link) and len(await results(link)) >= CALLS

    def ran() -> list[str]:
        path = tmp_path / "marks" / "ran"
        return path.read_text().splitlines() if path.exists() else []

    await set_up(link, topology(max_gib=1, shared=True))
    gateways = [machine(name) for name in ("one", "two", "three")]
    with ExitStack() as living:
        first, *_ = [living.enter_context(gateway.serving()) for gateway in gateways]
        await until(lambda: all(gateway.starts() for gateway in gateways), within_s=40)
        await until(all_ask, within_s=40)
        for step in range(1, CALLS + 1):
            await record(link, tmp_path, step=step)
        await until(lambda: len(ran()) == CALLS, within_s=30)
        said = await statuses(link, within_s=10)
        parts = [len(list(gateway.config.parent.glob("copy/*/calls/*/*"))) for gateway in gateways]
        first.kill()
        (tmp_path / "marks" / "go").touch()
        await until(all_told, within_s=40)
        told = [ending(result) for result in await results(link)]
    assert (all(parts), sum(parts), len(set(ran())), len(ran())) == (True, CALLS, CALLS, CALLS)
    assert (told.count("in_doubt"), told.count("ok"), len(told)) == (parts[0], CALLS - parts[0], CALLS)
    assert (len({status.gateway for status in said}), {status.gateways for status in said}) == (3, {3})
