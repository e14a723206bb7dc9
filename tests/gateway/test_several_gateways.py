"""Several gateways of one bus as processes: calls are shared, and none is lost or run twice when one of them dies."""

from contextlib import ExitStack
from pathlib import Path

from agent_service.bus.gateway import statuses
from agent_service.bus.topology import topology
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from schemas import subjects
from tests.gateway.on_nats import all_acknowledged, results
from tests.gateway.served import Gateway, ending, record
from tests.kit.waiting import until

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
        info = await link.jetstream.consumer_info(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
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
