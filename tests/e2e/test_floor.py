"""The floor that the benchmark compares with makes all the steps that it times."""

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.bench.floor import RESULT, STREAM, floor


async def test_every_step_is_asked_for_answered_and_timed(nats_server: EmbeddedNats, link: NatsLink) -> None:
    async with floor(nats_server.url) as ground:
        before = await _results(link)
        seconds, each = await ground.steps(50, 8)
        after = await _results(link)
    assert after - before == len(each) == 50
    assert 0 < max(each) <= seconds


async def _results(link: NatsLink) -> int:
    state = (await link.jetstream.stream_info(STREAM, subjects_filter=RESULT)).state
    return (state.subjects or {})[RESULT]
