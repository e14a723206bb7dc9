"""What exists on a bus is given what the topology adds, and nothing else of it is touched."""

from dataclasses import replace
from typing import Any

import pytest
from nats.js.api import RePublish, StoreCompression

from agent_service.bus.topology import Executor, check, topology
from groundwork.nats.completing import change, set_up
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    ADDED,
    ConsumerSpec,
    StreamSpec,
    Topology,
    check_topology,
    create_missing,
)
from groundwork.service.errors import Misconfigured
from schemas import keys, subjects
from tests.kit.bus import DAY

STREAM = StreamSpec("WORK", {"subjects": ["work.>"], "max_age": DAY, "max_bytes": 1 << 26})
CONSUMER = ConsumerSpec("WORK", "workers", {"ack_wait": 30.0, "max_ack_pending": 7})
EARLIER = Topology(streams=(STREAM,), consumers=(CONSUMER,))
NOW = Topology(
    streams=(
        replace(
            STREAM,
            settings={
                **STREAM.settings,
                "description": "Work.",
                "republish": RePublish(src=">", dest="log.>"),
            },
        ),
    ),
    consumers=(replace(CONSUMER, settings={**CONSUMER.settings, "description": "Workers."}),),
)


async def configs(link: NatsLink) -> tuple[dict[str, Any], dict[str, Any]]:
    stream, consumer = (
        await link.jetstream.stream_info("WORK"),
        await link.jetstream.consumer_info("WORK", "workers"),
    )
    return stream.config.as_dict(), consumer.config.as_dict()


async def test_what_was_not_set_is_set_told_and_all_else_is_as_it_was(link: NatsLink) -> None:
    await create_missing(link, EARLIER)
    before = await configs(link)
    assert [finding.kind for finding in await check_topology(link, NOW)] == ["unset"] * 3
    told = [(one.kind, one.what, one.field, one.expected, one.actual) for one in await set_up(link, NOW)]
    assert told == [
        ("changed", "stream WORK", "description", "Work.", ""),
        ("changed", "stream WORK", "republish", "> to log.>", ""),
        ("changed", "consumer workers of stream WORK", "description", "Workers.", ""),
    ]
    after = await configs(link)
    assert [{**new, **dict.fromkeys(ADDED)} for new in after] == [{**old, **dict.fromkeys(ADDED)} for old in before]
    assert await check_topology(link, NOW) == await set_up(link, NOW) == []


async def test_what_somebody_has_set_otherwise_is_left_as_it_is_and_found(link: NatsLink) -> None:
    own = {"description": "Ours.", "republish": RePublish(src="work.a", dest="copy.a")}
    await create_missing(link, Topology(streams=(replace(STREAM, settings={**STREAM.settings, **own}),)))
    left = [(one.kind, one.field, one.actual) for one in await set_up(link, Topology(streams=NOW.streams))]
    assert left == [("differs", "description", "Ours."), ("differs", "republish", "work.a to copy.a")]


async def test_only_what_differs_is_changed_where_that_is_asked_for(link: NatsLink) -> None:
    await create_missing(link, EARLIER)
    await link.publish("work.a", b"kept", msg_id="a", headers={})
    stream = replace(STREAM, settings={**STREAM.settings, "max_bytes": 1 << 25})
    wanted = Topology(streams=(stream,), consumers=(replace(CONSUMER, settings={"ack_wait": 5.0}),))
    told = await change(link, wanted, await check_topology(link, wanted))
    assert [(one.kind, one.what, one.field, one.expected, one.actual) for one in told] == [
        ("changed", "stream WORK", "max_bytes", str(1 << 25), str(1 << 26)),
        ("changed", "consumer workers of stream WORK", "ack_wait", "5.0", "30.0"),
    ]
    assert await check_topology(link, wanted) == []
    info = await link.jetstream.stream_info("WORK")
    assert (info.config.max_age, info.state.messages) == (DAY, 1)


async def test_the_compression_that_damages_a_stream_is_taken_off_whoever_set_it(link: NatsLink) -> None:
    wanted = topology(max_gib=0.1, shared=True)
    harmful = tuple(replace(one, settings={**one.settings, "compression": "s2"}) for one in wanted.all_streams())
    await create_missing(link, Topology(streams=harmful))
    found = [(one.kind, one.what) for one in await check_topology(link, wanted) if one.kind != "missing"]
    assert found == [("harmful", one.what) for one in harmful]
    told = [
        (one.kind, one.what, one.field, one.expected, one.actual)
        for one in await set_up(link, wanted)
        if one.kind != "created"
    ]
    assert told == [("changed", one.what, "compression", "none", "s2") for one in harmful]
    assert {one.config.compression for one in await link.jetstream.streams_info()} == {StoreCompression.NONE}
    assert await set_up(link, wanted) == []


async def test_a_list_of_subjects_gets_what_it_lacks_and_keeps_what_else_is_in_it(link: NatsLink) -> None:
    theirs = StreamSpec("WORK", {**STREAM.settings, "subjects": ["work.a", "own.>"]})
    consumer = ConsumerSpec("WORK", "workers", {"filter_subjects": ["work.a"], "ack_wait": 30.0})
    await create_missing(link, Topology(streams=(theirs,), consumers=(consumer,)))
    wanted = Topology(
        streams=(StreamSpec("WORK", {**STREAM.settings, "subjects": ["work.a", "work.b", "own.c"]}),),
        consumers=(ConsumerSpec("WORK", "workers", {"filter_subjects": ["work.a", "work.b"]}),),
    )
    lacks = [(one.kind, one.what, one.expected) for one in await check_topology(link, wanted)]
    assert lacks == [("lacks", "stream WORK", "work.b"), ("lacks", "consumer workers of stream WORK", "work.b")]
    told = [(one.kind, one.field, one.expected, one.actual) for one in await set_up(link, wanted)]
    assert told[:2] == [
        ("changed", "subjects", "['work.a', 'own.>', 'work.b']", "['work.a', 'own.>']"),
        ("changed", "filter_subjects", "['work.a', 'work.b']", "['work.a']"),
    ]
    stream, of_a_consumer = await configs(link)
    assert stream["subjects"] == ["work.a", "own.>", "work.b"]
    assert of_a_consumer["filter_subjects"] == ["work.a", "work.b"]
    assert [one.kind for one in await set_up(link, wanted)] == ["differs"]


async def test_onlookers_hear_of_what_the_streams_have_stored_and_of_nothing_else(link: NatsLink) -> None:
    """A repetition is heard on its subject again, and is not stored again."""
    await set_up(link, topology(max_gib=1))
    onlooker = await link.client.subscribe("log.>")
    bodies = {
        subjects.START: b"1",
        subjects.tool_request("echo"): b"2",
        subjects.PROGRESS: b"3",
        subjects.REJECTED: b"4",
    }
    for _ in range(2):
        for subject, body in bodies.items():
            await link.publish(subject, body, msg_id=keys.start(subject), headers={})
    heard = [await onlooker.next_msg(timeout=5) for _ in bodies]
    assert {message.subject: message.data for message in heard} == {
        f"log.{name}": body for name, body in bodies.items()
    }
    await link.client.flush()
    assert onlooker.pending_msgs == 0
    assert [message.header["Nats-Sequence"] for message in heard if message.header] == ["1"] * 4


async def test_an_agent_does_not_start_on_a_stream_that_would_not_keep_what_it_asks_of_people(link: NatsLink) -> None:
    wanted = topology(max_gib=1)
    await create_missing(link, replace(wanted, streams=tuple(map(_earlier, wanted.streams))))
    told = "stream AGENTIC of NATS does not take agent.waiting, agent.reopened.*Run `agentic setup` once"
    with pytest.raises(Misconfigured, match=told):
        await check(link)
    await set_up(link, wanted)
    await check(link)


def _earlier(stream: StreamSpec) -> StreamSpec:
    new = (subjects.WAITING, subjects.REOPENED)
    return replace(
        stream, settings={**stream.settings, "subjects": [s for s in stream.settings["subjects"] if s not in new]}
    )


async def test_one_server_becomes_three_and_what_cannot_be_changed_is_made_anew_with_its_consumers(
    cluster_link: NatsLink,
) -> None:
    executor = Executor("someone", (subjects.tool_request("letter"),))
    await create_missing(cluster_link, topology(max_gib=0.05, shared=True, executors=[executor]))
    await cluster_link.publish(subjects.CANCEL, b"kept", msg_id="kept", headers={})
    wanted = topology(max_gib=0.05, shared=True, replicas=3)
    told = await change(cluster_link, wanted, await check_topology(cluster_link, wanted))
    remade = {one.what for one in told if one.kind == "remade"}
    assert remade == {f"stream {name}" for name in (subjects.STREAM_REQUESTS, subjects.STREAM_PROGRESS)}
    assert await check_topology(cluster_link, wanted) == []
    info = await cluster_link.jetstream.stream_info(subjects.STREAM)
    assert (info.config.num_replicas, info.state.messages) == (3, 1)
    kept = await cluster_link.jetstream.consumer_info(subjects.STREAM_REQUESTS, "someone")
    assert (kept.config.filter_subjects, kept.config.ack_wait) == ([subjects.tool_request("letter")], 30.0)
