"""A bus of an earlier version, which kept tool requests among the rest, after `agentic setup`."""

from dataclasses import replace

from agent_service.bus.topology import set_up, topology
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import ConsumerSpec, StreamSpec, Topology, check_topology, create_missing
from schemas import subjects

WANTED = topology(max_gib=1)
BEFORE = (subjects.START, subjects.ALL_TOOL_REQUESTS, subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL)


async def _earlier(link: NatsLink) -> None:
    streams = {stream.name: stream for stream in WANTED.streams if stream.name != subjects.STREAM_REQUESTS}
    work = streams[subjects.STREAM]
    endings = [subject for subject in work.settings["subjects"] if subject not in BEFORE]
    streams[subjects.STREAM] = StreamSpec(work.name, {**work.settings, "subjects": [*BEFORE, *endings]})
    consumers = tuple(
        replace(one, stream=subjects.STREAM) if one.name == subjects.DURABLE_TOOLS else one for one in WANTED.consumers
    )
    await create_missing(link, replace(WANTED, streams=tuple(streams.values()), consumers=consumers))


async def test_setup_gives_requests_their_own_stream_and_leaves_what_else_is_there(link: NatsLink) -> None:
    await _earlier(link)
    await link.publish(subjects.START, b"a start", msg_id="s", headers={})
    await link.publish(f"{subjects.TOOL_REQUEST}.fetch", b"a request", msg_id="q", headers={})
    findings = await set_up(link, WANTED)
    assert [(one.kind, one.what) for one in findings] == [
        ("changed", "stream AGENTIC"),
        ("changed", "stream AGENTIC_DLQ"),
        ("created", "stream AGENTIC_REQUESTS"),
        ("created", "consumer tools of stream AGENTIC_REQUESTS"),
    ]
    assert await check_topology(link, WANTED) == []
    assert (await link.jetstream.get_last_msg(subjects.STREAM, subjects.START)).data == b"a start"
    again = await link.publish(f"{subjects.TOOL_REQUEST}.fetch", b"a request", msg_id="q", headers={})
    assert (again.stream, again.duplicate) == (subjects.STREAM_REQUESTS, False), "it is asked for once more"
    assert await set_up(link, WANTED) == []


async def test_a_setup_that_was_ended_half_way_is_finished_by_the_next(link: NatsLink) -> None:
    await _earlier(link)
    await link.jetstream.delete_consumer(subjects.STREAM, subjects.DURABLE_TOOLS)
    assert await set_up(link, WANTED)
    assert await check_topology(link, WANTED) == []


async def test_without_setup_the_check_names_what_is_missing(link: NatsLink) -> None:
    await _earlier(link)
    needed = ConsumerSpec(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS, {})
    found = await check_topology(link, Topology(consumers=(needed,)))
    assert [(one.kind, one.what) for one in found] == [("missing", needed.what)]
