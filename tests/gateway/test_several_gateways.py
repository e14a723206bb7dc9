"""Several gateways of one bus as processes: calls are shared, and none is lost or run twice when one of them dies."""

from contextlib import ExitStack
from pathlib import Path

from agent_service.bus.gateway import statuses
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.gateway.served import ending, fleet
from tests.kit.waiting import until

CALLS = 12


async def test_all_take_their_part_each_call_is_run_once_and_those_of_a_machine_that_died_are_in_doubt(
    tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats
) -> None:
    names = ("one", "two", "three")
    async with fleet(tmp_path, link, nats_server.url) as ships:
        with ExitStack() as living:
            first, *_ = [living.enter_context(ships.serving(name, concurrency=CALLS)) for name in names]
            for name in names:
                await ships.ready(name)
            await ships.asking(3)
            for step in range(1, CALLS + 1):
                await ships.record(step=step)
            await until(lambda: len(ships.ran()) == CALLS, within_s=30)
            said = await statuses(ships.link, within_s=10)
            parts = [len(ships.began(name)) for name in names]
            first.kill()
            first.wait()
            ships.go()
            told = [ending(result) for result in await ships.results(CALLS)]
    assert (all(parts), sum(parts), len(set(ships.ran())), len(ships.ran())) == (True, CALLS, CALLS, CALLS)
    assert (told.count("in_doubt"), told.count("ok")) == (parts[0], CALLS - parts[0])
    assert (len({status.gateway for status in said}), {status.gateways for status in said}) == (3, {3})
