"""What exists otherwise than it should is changed where a person asks for it, and nothing else of it."""

from dataclasses import replace

from agent_service.bus.topology import Executor, topology
from groundwork.nats.changing import change
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import ConsumerSpec, StreamSpec, Topology, check_topology, create_missing
from schemas import subjects
from tests.kit.bus import DAY

STREAM = StreamSpec("WORK", {"subjects": ["work.>"], "max_age": DAY, "max_bytes": 1 << 26})
CONSUMER = ConsumerSpec("WORK", "workers", {"ack_wait": 30.0, "max_ack_pending": 7})
NOW = Topology(streams=(STREAM,), consumers=(CONSUMER,))
SIZE = 0.05


def wished(*, ack_wait: float = 30.0, max_bytes: int = 1 << 26) -> Topology:
    stream = replace(STREAM, settings={**STREAM.settings, "max_bytes": max_bytes})
    consumer = replace(CONSUMER, settings={**CONSUMER.settings, "ack_wait": ack_wait})
    return Topology(streams=(stream,), consumers=(consumer,))


async def test_only_what_differs_is_changed_and_told(link: NatsLink) -> None:
    await create_missing(link, NOW)
    await link.publish("work.a", b"kept", msg_id="a", headers={})
    wanted = wished(ack_wait=5.0, max_bytes=1 << 25)
    told = await change(link, wanted, await check_topology(link, wanted))
    assert [(one.kind, one.what, one.field, one.expected, one.actual) for one in told] == [
        ("changed", "stream WORK", "max_bytes", str(1 << 25), str(1 << 26)),
        ("changed", "consumer workers of stream WORK", "ack_wait", "5.0", "30.0"),
    ]
    assert await check_topology(link, wanted) == []
    info = await link.jetstream.stream_info("WORK")
    assert (info.config.max_age, info.state.messages) == (DAY, 1)


async def test_what_is_as_it_should_be_is_not_touched(link: NatsLink) -> None:
    await create_missing(link, NOW)
    assert await change(link, NOW, await check_topology(link, NOW)) == []


async def test_one_server_becomes_three_and_what_cannot_be_changed_is_made_anew_with_its_consumers(
    cluster_link: NatsLink,
) -> None:
    executor = Executor("someone", (subjects.tool_request("letter"),))
    await create_missing(cluster_link, topology(max_gib=SIZE, shared=True, executors=[executor]))
    await cluster_link.publish(subjects.CANCEL, b"kept", msg_id="kept", headers={})
    wanted = topology(max_gib=SIZE, shared=True, replicas=3)
    told = await change(cluster_link, wanted, await check_topology(cluster_link, wanted))
    remade = {one.what for one in told if one.kind == "remade"}
    assert remade == {f"stream {name}" for name in (subjects.STREAM_REQUESTS, subjects.STREAM_PROGRESS)}
    assert await check_topology(cluster_link, wanted) == []
    info = await cluster_link.jetstream.stream_info(subjects.STREAM)
    assert (info.config.num_replicas, info.state.messages) == (3, 1)
    kept = await cluster_link.jetstream.consumer_info(subjects.STREAM_REQUESTS, "someone")
    assert (kept.config.filter_subjects, kept.config.ack_wait) == ([subjects.tool_request("letter")], 30.0)
