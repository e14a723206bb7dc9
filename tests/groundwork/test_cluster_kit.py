"""The cluster that other tests stand on does what they believe of it."""

from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import TryAgain
from tests.kit.bus import a_stream
from tests.kit.cluster import Cluster
from tests.kit.waiting import until


async def _messages(link: NatsLink) -> int:
    return (await link.jetstream.stream_info("WORK")).state.messages


async def _is_stored(link: NatsLink, number: int, within_s: float = 15.0) -> bool:
    try:
        await link.publish("work.now", b"", msg_id=str(number), headers={}, within_s=within_s)
    except TryAgain:
        return False
    return True


async def test_what_was_stored_outlives_the_leader_and_is_led_by_another(
    cluster: Cluster, cluster_link: NatsLink
) -> None:
    await a_stream(cluster_link, num_replicas=3)
    assert await _is_stored(cluster_link, 1)
    leader = await cluster.leader("WORK")
    leader.kill()
    assert await _is_stored(cluster_link, 2)
    assert await cluster.leader("WORK") is not leader
    assert await _messages(cluster_link) == 2


async def test_without_two_of_three_nothing_is_stored_and_with_them_it_goes_on(
    cluster: Cluster, cluster_link: NatsLink
) -> None:
    await a_stream(cluster_link, num_replicas=3)
    one, other = await cluster.others("WORK")
    one.kill()
    other.stop()
    assert not await _is_stored(cluster_link, 1, within_s=1.0)
    await cluster.heal()
    assert await _is_stored(cluster_link, 1)


async def test_a_leader_that_is_cut_off_stores_nothing_while_the_others_go_on(cut_cluster: Cluster) -> None:
    async with cut_cluster.linked() as link:
        await a_stream(link, num_replicas=3)
    leader = await cut_cluster.leader("WORK")
    others = await cut_cluster.others("WORK")
    alone = await connect(NatsSettings(urls=(leader.url,)))
    majority = await connect(NatsSettings(urls=tuple(node.url for node in others)))
    cut_cluster.cut_off(leader)
    assert not await _is_stored(alone, 1, within_s=1.0)
    assert await _is_stored(majority, 2)
    await cut_cluster.heal()
    assert await _is_stored(alone, 3)
    await until(lambda: _is_stored(majority, 1))
    assert await _messages(majority) == 3
    await alone.close()
    await majority.close()
