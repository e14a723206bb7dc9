"""A bus of an earlier version, which kept all work in one stream, after `agentic setup`."""

from dataclasses import replace

import pytest

from agent_service.bus.moving import set_up
from agent_service.bus.topology import check, topology
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import ConsumerSpec, StreamSpec, Topology, check_topology, create_missing
from groundwork.service.errors import Misconfigured
from schemas import subjects

WANTED = topology(max_gib=1)
OF_WORK = (subjects.STREAM, subjects.STREAM_STARTS, subjects.STREAM_RESULTS)
TAKEN = ["agentic.start", "agentic.tool_result"]


async def _earlier(link: NatsLink, *, requests: bool = False, **settings: object) -> None:
    """`requests`: still earlier, when tool requests were there too."""
    streams = {stream.name: stream for stream in WANTED.streams}
    work = streams[subjects.STREAM].settings
    others = [subjects.ALL_TOOL_REQUESTS] if requests else []
    old = {"subjects": [*TAKEN, *others, *work["subjects"]], "discard": "new", "max_bytes": 1 << 30}
    streams[subjects.STREAM] = StreamSpec(subjects.STREAM, {**work, **old, **settings})
    consumers = {one.name: one for one in WANTED.consumers if one.name != subjects.DURABLE_STARTS}
    loop = consumers[subjects.DURABLE_LOOP]
    consumers["loop"] = ConsumerSpec(subjects.STREAM, loop.name, {**loop.settings, "filter_subjects": TAKEN})
    if requests:
        consumers["tools"] = replace(consumers[subjects.DURABLE_TOOLS], stream=subjects.STREAM)
    new = {subjects.STREAM_STARTS, subjects.STREAM_RESULTS} | ({subjects.STREAM_REQUESTS} if requests else set())
    kept = tuple(stream for name, stream in streams.items() if name not in new)
    await create_missing(link, replace(WANTED, streams=kept, consumers=tuple(consumers.values())))


async def put(link: NatsLink, subject: str, name: str) -> None:
    await link.publish(subject, name.encode(), msg_id=name, headers={"traceparent": f"of {name}"})


async def kept(link: NatsLink, stream: str) -> dict[str, str]:
    """The bodies in a stream, with the header that each had."""
    state = (await link.jetstream.stream_info(stream)).state
    stored = [await link.jetstream.get_msg(stream, seq) for seq in range(state.first_seq or 1, state.last_seq + 1)]
    return {(one.data or b"").decode(): (one.headers or {}).get("traceparent", "") for one in stored}


async def test_setup_parts_the_work_and_loses_nothing_that_nobody_has_taken(link: NatsLink) -> None:
    await _earlier(link)
    for subject, name in (("start", "s1"), ("tool_result", "r1"), ("start", "s2"), ("signal", "p1"), ("start", "s3")):
        await put(link, f"agentic.{subject}", name)
    loop = await link.jetstream.pull_subscribe_bind(subjects.DURABLE_LOOP, subjects.STREAM)
    done, _in_hand, *_ = await loop.fetch(3)
    await done.ack_sync()
    changed = [(one.kind, one.what, one.field) for one in await set_up(link, WANTED) if one.kind != "created"]
    assert changed == [("changed", "stream AGENTIC", name) for name in ("subjects", "discard", "max_bytes")]
    assert await check_topology(link, WANTED) == await set_up(link, WANTED) == []
    assert await kept(link, subjects.STREAM_STARTS) == {"s2": "of s2", "s3": "of s3"}
    assert await kept(link, subjects.STREAM_RESULTS) == {"r1": "of r1"}
    await check(link)


async def test_the_room_of_the_one_stream_is_that_of_all_and_what_an_operator_chose_stays(link: NatsLink) -> None:
    await _earlier(link, max_bytes=1 << 29)
    await set_up(link, WANTED)
    assert (await link.jetstream.stream_info(subjects.STREAM)).config.max_bytes == 1 << 29
    assert sum(stream.settings["max_bytes"] for stream in WANTED.streams if stream.name in OF_WORK) == 1 << 30


async def test_requests_have_their_own_stream_and_are_asked_for_once_more(link: NatsLink) -> None:
    await _earlier(link, requests=True)
    await put(link, "agentic.tool_request.fetch", "q")
    await set_up(link, WANTED)
    assert await check_topology(link, WANTED) == []
    again = await link.publish("agentic.tool_request.fetch", b"q", msg_id="q", headers={})
    assert (again.stream, again.duplicate) == (subjects.STREAM_REQUESTS, False)


async def test_a_setup_that_was_ended_half_way_is_finished_by_the_next(link: NatsLink) -> None:
    await _earlier(link)
    await put(link, subjects.START, "s1")
    work = {stream.name: stream for stream in WANTED.streams}[subjects.STREAM]
    config = (await link.jetstream.stream_info(subjects.STREAM)).config
    await link.jetstream.update_stream(config.evolve(subjects=work.settings["subjects"]))
    await set_up(link, WANTED)
    assert await kept(link, subjects.STREAM_STARTS) == {"s1": "of s1"}


async def test_without_setup_the_agent_says_what_is_missing(link: NatsLink) -> None:
    await _earlier(link)
    with pytest.raises(Misconfigured, match=r"no stream AGENTIC_STARTS, stream AGENTIC_RESULTS.*run `agentic setup`"):
        await check(link)


async def test_what_waits_for_the_agent_takes_room_and_what_it_has_taken_does_not(link: NatsLink) -> None:
    await create_missing(link, Topology(streams=WANTED.streams, consumers=WANTED.consumers))
    for number in range(3):
        await put(link, subjects.START, f"s{number}")
    starts = await link.jetstream.pull_subscribe_bind(subjects.DURABLE_STARTS, subjects.STREAM_STARTS)
    for message in await starts.fetch(2):
        await message.ack_sync()
    assert await kept(link, subjects.STREAM_STARTS) == {"s2": "of s2"}
